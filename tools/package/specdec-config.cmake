# find_package(specdec): the interface target specdec::specdec, whose header lies in the include folder of the prefix that this
# file was installed below (PREFIX/share/cmake/specdec). One source of the user's defines SPECDEC_IMPLEMENTATION.
include(CMakeFindDependencyMacro)
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_dependency(Threads)
if(NOT TARGET specdec::specdec)
    get_filename_component(specdec_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
    add_library(specdec::specdec INTERFACE IMPORTED)
    set_target_properties(specdec::specdec PROPERTIES
        INTERFACE_INCLUDE_DIRECTORIES "${specdec_prefix}/include"
        INTERFACE_LINK_LIBRARIES Threads::Threads)
    unset(specdec_prefix)
endif()
