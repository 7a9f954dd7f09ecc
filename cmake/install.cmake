# What `cmake --install` puts under its prefix: the library, its public headers, the program, the licence, and the
# package that find_package(mantissa) finds. No file names the prefix, so the tree may be moved afterwards.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/mantissa)

install(TARGETS mantissa EXPORT mantissa-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS mantissa_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
# A device's own headers are no one's business but its own; only the one that makes the device, device/NAME/NAME_device.h,
# is public. What the rows of the op table share is theirs.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/mantissa DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h" PATTERN "mantissa/device/*/*" EXCLUDE PATTERN "mantissa/graph/ops/*" EXCLUDE)
file(GLOB device_makers RELATIVE ${PROJECT_SOURCE_DIR} CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/mantissa/device/*/*_device.h)
foreach(header IN LISTS device_makers)
  get_filename_component(folder ${header} DIRECTORY)
  install(FILES ${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/${folder})
endforeach()
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

install(EXPORT mantissa-targets NAMESPACE mantissa:: DESTINATION ${package_dir})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/mantissa-config.cmake.in
                              ${CMAKE_BINARY_DIR}/mantissa-config.cmake INSTALL_DESTINATION ${package_dir})
# Before 1.0 a minor version may change what a program relies on.
write_basic_package_version_file(${CMAKE_BINARY_DIR}/mantissa-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/mantissa-config.cmake ${CMAKE_BINARY_DIR}/mantissa-config-version.cmake
        DESTINATION ${package_dir})
