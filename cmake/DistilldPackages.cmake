# What cpack makes (scripts/package.sh calls it): distilld_VERSION_ARCH.deb of the component `control`,
# distilld-worker_VERSION_ARCH.deb of `worker`, and a .tar.gz of both.
find_program(DPKG_PROGRAM dpkg)
set(debian_architecture ${CMAKE_SYSTEM_PROCESSOR})
if(DPKG_PROGRAM)
    execute_process(COMMAND ${DPKG_PROGRAM} --print-architecture OUTPUT_VARIABLE debian_architecture
        OUTPUT_STRIP_TRAILING_WHITESPACE)
endif()

set(CPACK_GENERATOR DEB TGZ)
set(CPACK_PACKAGE_NAME distilld)
set(CPACK_PACKAGE_VENDOR "distilld authors")
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_FILE_NAME distilld-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_SOURCE_DIR}/build/packages)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL control)
if(DISTILLD_WITH_TORCH)
    list(APPEND CPACK_COMPONENTS_ALL worker)
endif()
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_SOURCE_DIR}/cmake/finish_package.cmake)
set(CPACK_DISTILLD_PACKAGING ${CMAKE_SOURCE_DIR}/packaging)

set(CPACK_DEB_COMPONENT_INSTALL ON)
# xz takes minutes of a core for libtorch, and lintian does not know zstd.
set(CPACK_DEBIAN_COMPRESSION_TYPE gzip)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "distilld authors <maintainers@distilld.invalid>")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
# Dependencies: scripts/package.sh finds them out (dpkg-shlibdeps) and gives them to cpack. cpack's own SHLIBDEPS would
# also name the packages of the libraries that these packages bring themselves.

set(CPACK_DEBIAN_CONTROL_PACKAGE_NAME distilld)
set(CPACK_DEBIAN_CONTROL_FILE_NAME distilld_${PROJECT_VERSION}_${debian_architecture}.deb)
set(CPACK_DEBIAN_CONTROL_PACKAGE_SECTION net)
set(CPACK_DEBIAN_CONTROL_PACKAGE_RECOMMENDS "distilld-worker (= ${PROJECT_VERSION})")
set(CPACK_COMPONENT_CONTROL_DESCRIPTION "distillation daemon: service and command line
distilld trains a small language model to imitate a large one that answers
over HTTP, and keeps the small one from waiting for it. This package holds
the service with its REST interface, job store and metrics, and the command
line. What computes is in the package distilld-worker.")
set(CPACK_DEBIAN_CONTROL_DESCRIPTION ${CPACK_COMPONENT_CONTROL_DESCRIPTION})
set(scripts ${CMAKE_SOURCE_DIR}/packaging/debian)
set(CPACK_DEBIAN_CONTROL_PACKAGE_CONTROL_EXTRA
    ${scripts}/conffiles ${scripts}/postinst ${scripts}/prerm ${scripts}/postrm)

set(CPACK_DEBIAN_WORKER_PACKAGE_NAME distilld-worker)
set(CPACK_DEBIAN_WORKER_PACKAGE_RECOMMENDS python3-jinja2)  # chats of distilld teacher
set(CPACK_DEBIAN_WORKER_FILE_NAME distilld-worker_${PROJECT_VERSION}_${debian_architecture}.deb)
set(CPACK_DEBIAN_WORKER_PACKAGE_SECTION net)
set(CPACK_COMPONENT_WORKER_DESCRIPTION "distillation daemon: what trains and serves models
distilld trains a small language model to imitate a large one that answers
over HTTP. This package holds the program that distilld starts for each job
and for `distilld teacher`, with the libtorch that it uses.")
set(CPACK_DEBIAN_WORKER_DESCRIPTION ${CPACK_COMPONENT_WORKER_DESCRIPTION})
include(CPack)
