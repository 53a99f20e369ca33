# Run by cpack on the staged files, before they are packed: what Debian's packages have and other installations have
# not, and one time for all files, so that the same commit gives the same packages.
set(root ${CPACK_TEMPORARY_INSTALL_DIRECTORY})
set(packaging ${CPACK_DISTILLD_PACKAGING})

function(run)
    execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

if(CPACK_GENERATOR STREQUAL "DEB")
    foreach(component control worker)
        set(stage ${root}/${component})
        if(NOT EXISTS ${stage}/usr)
            continue()
        endif()
        set(package distilld)
        if(component STREQUAL "worker")
            set(package distilld-worker)
        endif()
        set(doc ${stage}/usr/share/doc/${package})
        file(MAKE_DIRECTORY ${doc})
        configure_file(${packaging}/debian/copyright ${doc}/copyright COPYONLY)
        file(REMOVE ${doc}/LICENSE)  # the copyright file says it
        string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)  # SOURCE_DATE_EPOCH
        set(PACKAGE ${package})
        configure_file(${packaging}/debian/changelog.in ${doc}/changelog @ONLY)
        file(GLOB compressed ${doc}/changelog ${stage}/usr/share/man/man1/*.1)
        run(gzip -9nf ${compressed})
        if(component STREQUAL "control")
            configure_file(${packaging}/distilld.default ${stage}/etc/default/distilld COPYONLY)
        endif()
        if(EXISTS ${packaging}/debian/${package}.lintian-overrides)
            configure_file(${packaging}/debian/${package}.lintian-overrides
                ${stage}/usr/share/lintian/overrides/${package} COPYONLY)
        endif()
    endforeach()
endif()

# Modes must not depend on the umask of who builds.
run(chmod -R u=rwX,go=rX ${root})
if(DEFINED ENV{SOURCE_DATE_EPOCH})
    run(find ${root} -exec touch -h -d "@$ENV{SOURCE_DATE_EPOCH}" {} +)
endif()
