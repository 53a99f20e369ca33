# Flags of every target of ours, as one interface library.

# GCC 12 destroys temporaries of a co_await expression twice (docs/decisions/0002-compiler.md).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    message(FATAL_ERROR "GCC ${CMAKE_CXX_COMPILER_VERSION} miscompiles coroutines. Use GCC 13 or newer, or Clang 16 "
                        "or newer: configure with CXX=clang++-19 in the environment.")
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 16)
    message(FATAL_ERROR "Clang ${CMAKE_CXX_COMPILER_VERSION} is too old: 16 or newer is needed.")
endif()

if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1")
if(DISTILLD_SANITIZER)
    set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g1")  # lines, which is what reports name
endif()

find_program(LLD_PROGRAM NAMES ld.lld ld.lld-19)
if(LLD_PROGRAM AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    add_link_options(-fuse-ld=lld)
endif()

# Of what GCC says by the way in which it has inlined, some is false and comes and goes with level and version: that a
# variable of a coroutine may be unset, that Asio frees a coroutine's frame with another operator than it was made with
# (GCC 14), sizes that cannot occur. It is told, but does not end the build. In a batch of sources, GCC takes anonymous
# namespaces for those of a header.
add_library(distilld_flags INTERFACE)
target_compile_options(distilld_flags INTERFACE
    -Wall -Wextra -Wpedantic -Werror -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wno-unused-parameter
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized -Wno-error=array-bounds -Wno-error=stringop-overflow
        -Wno-error=mismatched-new-delete -Wno-subobject-linkage -Wno-dangling-reference -Wno-error=non-virtual-dtor>)
target_include_directories(distilld_flags INTERFACE ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR}/generated)
# __FILE__ starts at the root. With the checkout's folder in it, no batch of tests would come from ccache in another
# checkout: CMake's batches include their sources by absolute paths, which ccache does not make relative.
target_compile_options(distilld_flags INTERFACE -fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=)

if(DISTILLD_REPRODUCIBLE)
    # Paths get into programs as __FILE__ and as names of lambdas, and ccache makes them relative to the build folder.
    target_compile_options(distilld_flags INTERFACE
        -ffile-prefix-map=${CMAKE_SOURCE_DIR}/= -ffile-prefix-map=../../=)
    # The run path of the build folder is as long as the checkout's name, and patching it leaves that length behind.
    set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)
endif()

if(DISTILLD_SANITIZER STREQUAL "address")
    target_compile_options(distilld_flags INTERFACE -fsanitize=address,undefined -fno-sanitize=vptr
        -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
    target_link_options(distilld_flags INTERFACE -fsanitize=address,undefined -fno-sanitize=vptr)
    # Recycled coroutine frames would hide a use after free. libstdc++ checks what callers may get wrong.
    target_compile_definitions(distilld_flags INTERFACE BOOST_ASIO_DISABLE_AWAITABLE_FRAME_RECYCLING
        _GLIBCXX_ASSERTIONS)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
        # Undefined behaviour is looked for in our own sources only: templates of libraries would add a third to
        # the time of this build. The file's name changes with what it says, because neither Ninja nor ccache reads it;
        # it is relative to the build folder, so that checkouts share what ccache has.
        set(libraries "[undefined]\nsrc:/usr/include/*\nsrc:/usr/lib/*\nsrc:*/libtorch/include/*\n")
        string(SHA1 libraries_name "${libraries}")
        set(libraries_name generated/libraries-${libraries_name}.txt)
        file(WRITE ${CMAKE_BINARY_DIR}/${libraries_name} "${libraries}")
        target_compile_options(distilld_flags INTERFACE -fsanitize-ignorelist=${libraries_name})
    endif()
elseif(DISTILLD_SANITIZER STREQUAL "thread")
    target_compile_options(distilld_flags INTERFACE -fsanitize=thread -fno-omit-frame-pointer)
    target_link_options(distilld_flags INTERFACE -fsanitize=thread)
elseif(DISTILLD_SANITIZER)
    message(FATAL_ERROR "DISTILLD_SANITIZER is '${DISTILLD_SANITIZER}': address, thread or empty is expected")
endif()

configure_file(${CMAKE_SOURCE_DIR}/cmake/version.hpp.in ${CMAKE_BINARY_DIR}/generated/distilld_version.hpp @ONLY)
