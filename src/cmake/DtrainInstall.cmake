# Headers, library, pkg-config file and CMake package; all paths are relative to the prefix.
include(CMakePackageConfigHelpers)

install(TARGETS dtrain EXPORT dtrainTargets
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
    INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES include/dtrain/dtrain.h include/dtrain/dtrain_cuda.h ${PROJECT_BINARY_DIR}/include/dtrain/version.h
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/dtrain)
if(DTRAIN_HAVE_CUDA)
    install(TARGETS dtrain_nccl LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
if(DTRAIN_HAVE_MPI)
    install(FILES include/dtrain/dtrain_mpi.h
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/dtrain)
endif()

set(dt_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/dtrain)
configure_package_config_file(src/cmake/dtrainConfig.cmake.in
    ${PROJECT_BINARY_DIR}/cmake/dtrainConfig.cmake
    INSTALL_DESTINATION ${dt_package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/cmake/dtrainConfigVersion.cmake
    COMPATIBILITY SameMinorVersion)
install(EXPORT dtrainTargets NAMESPACE dtrain:: DESTINATION ${dt_package_dir})
install(FILES ${PROJECT_BINARY_DIR}/cmake/dtrainConfig.cmake
    ${PROJECT_BINARY_DIR}/cmake/dtrainConfigVersion.cmake
    DESTINATION ${dt_package_dir})

# From the .pc file's own folder up to the prefix, so that the tree can be moved.
file(RELATIVE_PATH dt_pc_to_prefix
    /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
string(REGEX REPLACE "/$" "" dt_pc_to_prefix "${dt_pc_to_prefix}")
configure_file(src/cmake/dtrain.pc.in ${PROJECT_BINARY_DIR}/cmake/dtrain.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/cmake/dtrain.pc
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
