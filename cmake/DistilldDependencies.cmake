# Third-party packages. Header-only Boost is compiled once, in the library distilld_boost.
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(Boost 1.83 REQUIRED COMPONENTS url)
find_package(spdlog REQUIRED)
find_package(CLI11 REQUIRED)
find_package(simdjson REQUIRED)
find_package(SQLite3 REQUIRED)

# prometheus-cpp's own config asks for civetweb and curl; only its core is used (our Beast server serves /metrics).
find_library(PROMETHEUS_CPP_CORE prometheus-cpp-core REQUIRED)
find_path(PROMETHEUS_CPP_INCLUDE prometheus/registry.h REQUIRED)
add_library(distilld_prometheus INTERFACE)
target_link_libraries(distilld_prometheus INTERFACE ${PROMETHEUS_CPP_CORE})
target_include_directories(distilld_prometheus SYSTEM INTERFACE ${PROMETHEUS_CPP_INCLUDE})

# The tokenizer's regular expressions and normal forms.
find_library(PCRE2_LIBRARY pcre2-8 REQUIRED)
find_path(PCRE2_INCLUDE pcre2.h REQUIRED)
find_library(UTF8PROC_LIBRARY utf8proc REQUIRED)
find_path(UTF8PROC_INCLUDE utf8proc.h REQUIRED)
add_library(distilld_unicode INTERFACE)
target_link_libraries(distilld_unicode INTERFACE ${PCRE2_LIBRARY} ${UTF8PROC_LIBRARY})
target_include_directories(distilld_unicode SYSTEM INTERFACE ${PCRE2_INCLUDE} ${UTF8PROC_INCLUDE})

# The file of settings. Its headers hold all of it; Debian's package of the same name also has a library.
find_path(TOMLPLUSPLUS_INCLUDE toml++/toml.h REQUIRED)
add_library(distilld_toml INTERFACE)
target_include_directories(distilld_toml SYSTEM INTERFACE ${TOMLPLUSPLUS_INCLUDE})

# Datasets that are packed with gzip or zstd.
find_library(ZLIB_LIBRARY z REQUIRED)
find_path(ZLIB_INCLUDE zlib.h REQUIRED)
find_library(ZSTD_LIBRARY zstd REQUIRED)
find_path(ZSTD_INCLUDE zstd.h REQUIRED)
add_library(distilld_unpacking INTERFACE)
target_link_libraries(distilld_unpacking INTERFACE ${ZLIB_LIBRARY} ${ZSTD_LIBRARY})
target_include_directories(distilld_unpacking SYSTEM INTERFACE ${ZLIB_INCLUDE} ${ZSTD_INCLUDE})

# Models as tar streams.
find_package(LibArchive 3.6 REQUIRED)

add_library(distilld_boost STATIC ${CMAKE_SOURCE_DIR}/cmake/boost_asio_src.cpp
    ${CMAKE_SOURCE_DIR}/cmake/boost_beast_src.cpp ${CMAKE_SOURCE_DIR}/cmake/boost_json_src.cpp)
target_compile_definitions(distilld_boost PUBLIC
    BOOST_ASIO_SEPARATE_COMPILATION BOOST_BEAST_SEPARATE_COMPILATION BOOST_ASIO_NO_DEPRECATED
    BOOST_ALL_NO_LIB BOOST_JSON_NO_LIB)
target_link_libraries(distilld_boost PUBLIC Boost::headers Boost::url Threads::Threads OpenSSL::SSL OpenSSL::Crypto)
target_link_libraries(distilld_boost PRIVATE $<BUILD_INTERFACE:distilld_flags>)

if(DISTILLD_WITH_TORCH)
    if(DEFINED ENV{DISTILLD_TORCH})
        list(PREPEND CMAKE_PREFIX_PATH $ENV{DISTILLD_TORCH})
    endif()
    list(APPEND CMAKE_PREFIX_PATH ${CMAKE_SOURCE_DIR}/.deps/libtorch)
    # What pip installs as torch is a CUDA build by default, and its CMake files ask for the CUDA toolkit. Nothing here
    # is compiled with that: libtorch's libraries find CUDA's by their own run path. With this target they do not ask.
    if(NOT TARGET torch::cudart)
        add_library(torch::cudart INTERFACE IMPORTED)
    endif()
    find_package(Torch REQUIRED)
    if(Torch_VERSION VERSION_LESS 2.6)
        message(FATAL_ERROR "libtorch ${Torch_VERSION} is too old: 2.6 or newer is needed")
    endif()
    if(TORCH_CXX_FLAGS MATCHES "_GLIBCXX_USE_CXX11_ABI=0")
        message(FATAL_ERROR "the libtorch in ${TORCH_INSTALL_PREFIX} has GCC's old C++ ABI, in which no other library "
            "here can be linked: take a CPU build, a CUDA build of torch 2.7 or newer, or Debian 13's libtorch-dev")
    endif()
    get_filename_component(DISTILLD_TORCH_LIB_DIR "${TORCH_INSTALL_PREFIX}/lib" ABSOLUTE)
    # Ranks over the network. libtorch contains gloo, but not its headers.
    find_path(GLOO_INCLUDE gloo/context.h)
    # torch's own targets carry -D and include paths; ours adds SYSTEM so that its warnings are not ours.
    add_library(distilld_torch INTERFACE)
    target_link_libraries(distilld_torch INTERFACE ${TORCH_LIBRARIES})
    target_include_directories(distilld_torch SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
    if(DISTILLD_REPRODUCIBLE)
        target_compile_options(distilld_torch INTERFACE -ffile-prefix-map=${TORCH_INSTALL_PREFIX}/=libtorch/)
    endif()
    # Torch's headers carry their own fmt; found first, it breaks spdlog. No target may link both.
endif()

if(DISTILLD_TESTS)
    find_package(GTest REQUIRED)
    find_package(Python3 COMPONENTS Interpreter)
endif()
