# distilld_library(NAME SOURCES a.cpp… [DEPS lib…] [PRIVATE_DEPS lib…])
# A static library of one folder. Sources are listed, never globbed.
function(distilld_library name)
    cmake_parse_arguments(arg "" "" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
    add_library(${name} STATIC ${arg_SOURCES})
    target_link_libraries(${name} PUBLIC ${arg_DEPS} PRIVATE distilld_flags ${arg_PRIVATE_DEPS})
endfunction()

# distilld_torch_library(NAME …): the same for one that uses libtorch, with the precompiled <torch/torch.h>.
function(distilld_torch_library name)
    distilld_library(${name} ${ARGN})
    target_link_libraries(${name} PUBLIC distilld_torch)
    distilld_precompiled_torch(${name})
endfunction()

# Every target that uses libtorch reuses one precompiled header: each of its own would cost about 15 s of a core.
#
# The header holds absolute paths, so one that ccache has from another checkout would be of no use: it is never taken
# from there. What is compiled with it is: ccache reads the .sum beside the header in place of the header
# (CCACHE_PCH_EXTSUM in scripts/build.sh), and that is the same in every checkout with this libtorch.
function(distilld_precompiled_torch name)
    if(NOT TARGET distilld_torch_header)
        set(source ${CMAKE_BINARY_DIR}/generated/torch_header.cpp)
        file(GENERATE OUTPUT ${source} CONTENT "")
        add_library(distilld_torch_header STATIC ${source})
        target_link_libraries(distilld_torch_header PRIVATE distilld_flags distilld_torch distilld_boost)
        target_precompile_headers(distilld_torch_header PRIVATE <torch/torch.h>)
        get_target_property(folder distilld_torch_header BINARY_DIR)
        set_target_properties(distilld_torch_header PROPERTIES CXX_COMPILER_LAUNCHER "")
        file(WRITE ${folder}/CMakeFiles/distilld_torch_header.dir/cmake_pch.hxx.pch.sum
            "torch ${Torch_VERSION} ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION} ${CMAKE_BUILD_TYPE} "
            "${DISTILLD_SANITIZER}\n")
    endif()
    target_precompile_headers(${name} REUSE_FROM distilld_torch_header)
endfunction()

# distilld_program(NAME SOURCES a.cpp… [DEPS lib…])
function(distilld_program name)
    cmake_parse_arguments(arg "" "" "SOURCES;DEPS" ${ARGN})
    add_executable(${name} ${arg_SOURCES})
    target_link_libraries(${name} PRIVATE distilld_flags ${arg_DEPS})
endfunction()

# distilld_test(NAME SOURCES a_test.cpp… [DEPS lib…] [TORCH] [TIMEOUT seconds])
# One GoogleTest program, registered with ctest under its own name (one entry: each start of libtorch costs 0.3 s).
# TORCH: with the precompiled torch header.
function(distilld_test name)
    cmake_parse_arguments(arg "TORCH" "TIMEOUT" "SOURCES;DEPS" ${ARGN})
    if(NOT arg_TIMEOUT)
        set(arg_TIMEOUT 300)
    endif()
    add_executable(${name} ${arg_SOURCES})
    target_link_libraries(${name} PRIVATE distilld_flags ${arg_DEPS} GTest::gmock GTest::gtest_main)
    target_compile_definitions(${name} PRIVATE DISTILLD_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
        DISTILLD_BIN_DIR="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
    if(arg_TORCH)
        distilld_precompiled_torch(${name})
    endif()
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT})
endfunction()
