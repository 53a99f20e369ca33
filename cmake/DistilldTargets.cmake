# distilld_batches(NAME ALONE…): compiles the target in batches of twenty sources, except those that define a name which
# another of its sources defines too. A batch takes a third to half less time than its sources.
function(distilld_batches name)
    set_target_properties(${name} PROPERTIES UNITY_BUILD ${DISTILLD_UNITY}
        UNITY_BUILD_BATCH_SIZE 20)
    set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# The same, but not in the preset dev, where each change is compiled.
function(distilld_batches_unless_dev name)
    if(NOT CMAKE_BUILD_TYPE STREQUAL "RelWithDebInfo")
        distilld_batches(${name} ${ARGN})
    endif()
endfunction()

# distilld_library(NAME SOURCES a.cpp… [ALONE b.cpp…] [FUZZED c.cpp…] [DEPS lib…] [PRIVATE_DEPS lib…])
# A static library of one folder. Sources are listed, never globbed.
# SOURCES are compiled in batches, see distilld_batches_unless_dev().
# FUZZED: those that read the input of others, see distilld_fuzzed(); the rest is not optimized under a sanitizer.
function(distilld_library name)
    cmake_parse_arguments(arg "OBJECTS" "" "SOURCES;ALONE;FUZZED;DEPS;PRIVATE_DEPS" ${ARGN})
    if(arg_FUZZED AND DISTILLD_SANITIZER)
        distilld_library(${name}_fuzzed OBJECTS SOURCES ${arg_FUZZED} DEPS ${arg_DEPS}
            PRIVATE_DEPS ${arg_PRIVATE_DEPS})
        distilld_fuzzed(${name}_fuzzed)
        set(arg_FUZZED $<TARGET_OBJECTS:${name}_fuzzed>)
    endif()
    set(kind STATIC)
    if(arg_OBJECTS)
        set(kind OBJECT)
    endif()
    add_library(${name} ${kind} ${arg_SOURCES} ${arg_FUZZED} ${arg_ALONE})
    distilld_batches_unless_dev(${name} ${arg_ALONE})
    set_property(GLOBAL APPEND PROPERTY distilld_targets ${name})
    target_link_libraries(${name} PUBLIC ${arg_DEPS} PRIVATE distilld_flags ${arg_PRIVATE_DEPS})
endfunction()

# distilld_optimized(NAME): the library is optimized under a sanitizer, too, because its tests take long. So are those
# that use libtorch. Others that link Boost are not: optimizing takes more than half of the time to compile coroutines.
function(distilld_optimized name)
    set_target_properties(${name} PROPERTIES DISTILLD_OPTIMIZED ON)
endfunction()

# distilld_fuzzed(NAME): with Clang's address sanitizer the library tells libFuzzer which of its branches an input took.
# Programs that do not fuzz are no worse off: the sanitizer's run-time library has empty functions for that.
# It is optimized, because tests send a lot of data through it.
function(distilld_fuzzed name)
    distilld_optimized(${name})
    if(DISTILLD_SANITIZER STREQUAL "address" AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
        # What -fsanitize=fuzzer-no-link stands for; with that itself the precompiled header would have to have it too.
        target_compile_options(${name} PRIVATE
            -fsanitize-coverage=inline-8bit-counters,indirect-calls,trace-cmp,pc-table)
    endif()
endfunction()

# distilld_torch_library(NAME …): the same for one that uses libtorch, with a precompiled header of it.
function(distilld_torch_library name)
    distilld_library(${name} ${ARGN})
    target_link_libraries(${name} PUBLIC distilld_torch)
    distilld_precompiled_torch(${name})
endfunction()

# distilld_precompiled_header(KIND STAMP DEPS lib… HEADERS <a.h>…) makes the target distilld_KIND_header, which has the
# precompiled header that other targets reuse: each of its own would cost up to 15 s of a core.
#
# The header holds absolute paths, so one of another checkout is of no use: ccache compares them here. What is compiled
# with it is of use everywhere: ccache reads the .sum beside the header in place of the header (CCACHE_PCH_EXTSUM in
# scripts/build.sh), and that is the same in every checkout with the libraries that STAMP names.
#
# CMake also gives Clang the header's path behind -Xclang, where ccache (4.7) does not make it relative: no two
# checkouts would share an object. The one option that is needed does without.
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    set(CMAKE_CXX_COMPILE_OPTIONS_USE_PCH -include-pch <PCH_FILE>)
else()
    # GCC does without the header where macros of the two differ (some libraries link no Boost). That is no mistake.
    set(CMAKE_PCH_WARN_INVALID OFF)
endif()

function(distilld_precompiled_header kind stamp)
    cmake_parse_arguments(arg "" "" "DEPS;HEADERS" ${ARGN})
    set(target distilld_${kind}_header)
    set(source ${CMAKE_BINARY_DIR}/generated/${kind}_header.cpp)
    file(GENERATE OUTPUT ${source} CONTENT "")
    add_library(${target} STATIC EXCLUDE_FROM_ALL ${source})
    target_link_libraries(${target} PRIVATE distilld_flags ${arg_DEPS})
    target_precompile_headers(${target} PRIVATE ${arg_HEADERS})
    set(launcher)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CCACHE_PROGRAM
       AND CMAKE_CXX_COMPILER_LAUNCHER STREQUAL CCACHE_PROGRAM)
        set(launcher ${CMAKE_COMMAND} -E env --unset=CCACHE_BASEDIR --unset=CCACHE_NOHASHDIR ${CCACHE_PROGRAM})
        # CMake writes its source anew; by its time, a header from the cache would be out of date.
        target_compile_options(${target} PRIVATE "SHELL:-Xclang -fno-pch-timestamp")
    endif()
    set_target_properties(${target} PROPERTIES CXX_COMPILER_LAUNCHER "${launcher}")
    get_target_property(folder ${target} BINARY_DIR)
    file(WRITE ${folder}/CMakeFiles/${target}.dir/cmake_pch.hxx.pch.sum
        "${stamp} ${arg_HEADERS} ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION} ${CMAKE_BUILD_TYPE} "
        "${DISTILLD_SANITIZER}\n")
endfunction()

# What most files that use libtorch include. <torch/torch.h> would add 1.2 s to the time of each of them, for modules
# and optimizers that are not used.
set(DISTILLD_TORCH_HEADERS <filesystem> <span> <boost/system/result.hpp> <torch/autograd.h> <torch/types.h>
    <torch/utils.h>)

function(distilld_precompiled_torch name)
    if(NOT TARGET distilld_torch_header)
        distilld_precompiled_header(torch "torch ${Torch_VERSION}" DEPS distilld_torch distilld_boost
            HEADERS ${DISTILLD_TORCH_HEADERS})
    endif()
    target_precompile_headers(${name} REUSE_FROM distilld_torch_header)
endfunction()

# The same for tests: unoptimized, and with GoogleTest.
function(distilld_precompiled_torch_test name)
    if(NOT TARGET distilld_torch_test_header)
        distilld_precompiled_header(torch_test "torch ${Torch_VERSION} gtest ${GTest_VERSION}"
            DEPS distilld_torch distilld_boost GTest::gmock
            HEADERS ${DISTILLD_TORCH_HEADERS} <gmock/gmock.h> <gtest/gtest.h>)
        target_compile_options(distilld_torch_test_header PRIVATE -O0)
    endif()
    target_precompile_headers(${name} REUSE_FROM distilld_torch_test_header)
endfunction()

# All libraries that a target links, through others too.
function(distilld_linked_libraries name result)
    get_target_property(todo ${name} LINK_LIBRARIES)
    set(seen)
    while(todo)
        list(POP_FRONT todo library)
        if(NOT TARGET ${library} OR library IN_LIST seen)
            continue()
        endif()
        list(APPEND seen ${library})
        get_target_property(more ${library} INTERFACE_LINK_LIBRARIES)
        if(more)
            list(APPEND todo ${more})
        endif()
    endwhile()
    set(${result} ${seen} PARENT_SCOPE)
endfunction()

# To be called when all targets are there. Gives those that link Boost and have no precompiled header one of what they
# include most: it takes 1 to 2.5 s from each file. (Files that forget an include are found by own_includes_rule in
# tests/unit/repo/include_rules_test.py, and by scripts/lint.sh, which uses no precompiled headers.)
function(distilld_precompile_boost)
    set(asio any_io_executor as_tuple awaitable bind_cancellation_slot bind_executor cancellation_signal co_spawn
        detached dispatch experimental/awaitable_operators experimental/channel io_context ip/tcp post steady_timer
        strand this_coro use_awaitable)
    list(TRANSFORM asio PREPEND "<boost/asio/")
    list(TRANSFORM asio APPEND ".hpp>")
    set(headers <algorithm> <array> <atomic> <chrono> <exception> <filesystem> <functional> <map> <memory> <mutex>
        <optional> <span> <string> <string_view> <thread> <unordered_map> <utility> <variant> <vector>
        ${asio} <boost/json.hpp>)
    set(stamp "boost ${Boost_VERSION} gtest ${GTest_VERSION}")
    distilld_precompiled_header(boost ${stamp} DEPS distilld_boost HEADERS ${headers})
    if(DISTILLD_SANITIZER)
        distilld_precompiled_header(unoptimized ${stamp} DEPS distilld_boost HEADERS ${headers})
        target_compile_options(distilld_unoptimized_header PRIVATE -O0)
    endif()
    if(DISTILLD_TESTS)
        distilld_precompiled_header(test ${stamp} DEPS distilld_boost GTest::gmock
            HEADERS ${headers} <gmock/gmock.h> <gtest/gtest.h>)
        target_compile_options(distilld_test_header PRIVATE -O0)
    endif()
    get_property(names GLOBAL PROPERTY distilld_targets)
    foreach(name IN LISTS names)
        get_target_property(has_one ${name} PRECOMPILE_HEADERS_REUSE_FROM)
        get_target_property(optimized ${name} DISTILLD_OPTIMIZED)
        distilld_linked_libraries(${name} libraries)
        if(has_one OR NOT distilld_boost IN_LIST libraries)
            continue()
        endif()
        if(GTest::gmock IN_LIST libraries)
            target_precompile_headers(${name} REUSE_FROM distilld_test_header)
        elseif(DISTILLD_SANITIZER AND NOT optimized)
            target_compile_options(${name} PRIVATE -O0)
            target_precompile_headers(${name} REUSE_FROM distilld_unoptimized_header)
        else()
            target_precompile_headers(${name} REUSE_FROM distilld_boost_header)
        endif()
    endforeach()
endfunction()

# distilld_program(NAME SOURCES a.cpp… [ALONE b.cpp…] [DEPS lib…])
# SOURCES are compiled in batches, see distilld_batches_unless_dev().
function(distilld_program name)
    cmake_parse_arguments(arg "" "" "SOURCES;ALONE;DEPS" ${ARGN})
    add_executable(${name} ${arg_SOURCES} ${arg_ALONE})
    distilld_batches_unless_dev(${name} ${arg_ALONE})
    set_property(GLOBAL APPEND PROPERTY distilld_targets ${name})
    target_link_libraries(${name} PRIVATE distilld_flags ${arg_DEPS})
endfunction()

# distilld_test(NAME [THREADS] SOURCES a_test.cpp… [ALONE b_test.cpp…] [DEPS lib…] [TORCH] [TIMEOUT seconds])
# One GoogleTest program, registered with ctest under its own name (one entry: each start of libtorch costs 0.3 s).
# TORCH: with the precompiled torch header. The target unit_tests builds all of them and what they run; the default
# target leaves them out, for scripts/test.sh runs them under the sanitizers only. They are compiled without
# optimization, which would spend most of its time on gmock and fixtures.
# SOURCES are compiled in batches, see distilld_batches().
# THREADS: what it tests runs on several threads; the tree of the thread sanitizer has no other tests.
function(distilld_test name)
    cmake_parse_arguments(arg "THREADS;TORCH" "TIMEOUT" "SOURCES;ALONE;DEPS" ${ARGN})
    if(DISTILLD_SANITIZER STREQUAL "thread" AND NOT arg_THREADS)
        return()
    endif()
    if(NOT arg_TIMEOUT)
        set(arg_TIMEOUT 300)
    endif()
    add_executable(${name} EXCLUDE_FROM_ALL ${arg_SOURCES} ${arg_ALONE})
    distilld_batches(${name} ${arg_ALONE})
    set_property(GLOBAL APPEND PROPERTY distilld_targets ${name})
    add_dependencies(unit_tests ${name})
    target_compile_options(${name} PRIVATE -O0)
    target_link_libraries(${name} PRIVATE distilld_flags distilld_test_paths ${arg_DEPS} GTest::gmock GTest::gtest_main)
    if(arg_TORCH)
        distilld_precompiled_torch_test(${name})
    endif()
    add_test(NAME ${name} COMMAND ${name})
    # Those that may take longest start first, so that none is left to run alone at the end.
    set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} COST ${arg_TIMEOUT})
endfunction()
