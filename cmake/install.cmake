# Everything that `cmake --install` puts under its prefix: the library, static (mantissa::mantissa) and shared
# (mantissa::mantissa_shared), its public headers, the program with its manual, the licence, and the package that
# find_package(mantissa) finds. No file names the prefix, so the tree may be moved afterwards.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/mantissa)

# First of all: where something is not built, nothing is installed.
set(built $<TARGET_FILE:mantissa> $<TARGET_FILE:mantissa_shared>)
foreach(target IN ITEMS mantissa_cli mantissa_openmpi mantissa_mpich)
  if(TARGET ${target})
    list(APPEND built $<TARGET_FILE:${target}>)
  endif()
endforeach()
install(CODE "
  set(built \"${built}\")
  foreach(file IN LISTS built)
    if(NOT EXISTS \"\${file}\")
      message(FATAL_ERROR \"\${file} is not built, so nothing was installed. Build first: cmake --build ${CMAKE_BINARY_DIR}\")
    endif()
  endforeach()")

install(TARGETS mantissa mantissa_shared EXPORT mantissa-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET mantissa_cli)
  install(TARGETS mantissa_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(FILES ${CMAKE_BINARY_DIR}/cli/mantissa.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  install(FILES ${CMAKE_BINARY_DIR}/cli/mantissa.bash RENAME mantissa
          DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES ${CMAKE_BINARY_DIR}/cli/mantissa.fish
          DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endif()
foreach(mpi IN ITEMS openmpi mpich)
  if(TARGET mantissa_${mpi})
    install(TARGETS mantissa_${mpi} LIBRARY DESTINATION lib/mantissa)  # beside the program's folder: ranks/launched.cpp
  endif()
endforeach()
# The public faces are mantissa/mantissa.h and mantissa/engine.h with what they bring along, found by following
# their includes.
set(public_headers "")
set(found mantissa/mantissa.h mantissa/engine.h)
while(found)
  list(POP_FRONT found header)
  list(APPEND public_headers ${header})
  set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${header})
  file(STRINGS ${PROJECT_SOURCE_DIR}/${header} lines REGEX "^#include \"mantissa/")
  list(TRANSFORM lines REPLACE "^#include \"([^\"]+)\".*" "\\1")
  list(APPEND found ${lines})
  list(REMOVE_DUPLICATES found)
  list(REMOVE_ITEM found ${public_headers})
endwhile()
foreach(header IN LISTS public_headers)
  get_filename_component(folder ${header} DIRECTORY)
  install(FILES ${PROJECT_SOURCE_DIR}/${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/${folder})
endforeach()
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

install(EXPORT mantissa-targets NAMESPACE mantissa:: DESTINATION ${package_dir})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/mantissa-config.cmake.in
                              ${CMAKE_BINARY_DIR}/mantissa-config.cmake INSTALL_DESTINATION ${package_dir})
# Before 1.0 a minor version may change what a program relies on.
write_basic_package_version_file(${CMAKE_BINARY_DIR}/mantissa-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/mantissa-config.cmake ${CMAKE_BINARY_DIR}/mantissa-config-version.cmake
        DESTINATION ${package_dir})
