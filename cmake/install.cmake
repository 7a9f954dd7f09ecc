# What `cmake --install` puts under its prefix: the library, its public headers, the program, the licence, and the
# package that find_package(mantissa) finds. No file names the prefix, so the tree may be moved afterwards.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/mantissa)

install(TARGETS mantissa EXPORT mantissa-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS mantissa_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
# A device's own headers are no one's business but its own: mantissa/device/device.h is public, device/cpu/ is not.
# What the rows of the op table share is theirs.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/mantissa DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h" PATTERN "mantissa/device/*/*" EXCLUDE PATTERN "mantissa/graph/ops/*" EXCLUDE)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

install(EXPORT mantissa-targets NAMESPACE mantissa:: DESTINATION ${package_dir})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/mantissa-config.cmake.in
                              ${CMAKE_BINARY_DIR}/mantissa-config.cmake INSTALL_DESTINATION ${package_dir})
# Before 1.0 a minor version may change what a program relies on.
write_basic_package_version_file(${CMAKE_BINARY_DIR}/mantissa-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/mantissa-config.cmake ${CMAKE_BINARY_DIR}/mantissa-config-version.cmake
        DESTINATION ${package_dir})
