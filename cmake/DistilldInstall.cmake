# What `cmake --install` writes. Two components: `control` (distilld and what it needs) and `worker` (distilld-worker,
# libtorch; it also needs the libraries of `control`). The tree can be moved: programs find their libraries in
# ../lib/distilld and each other beside themselves.
include(GNUInstallDirs)
set(DISTILLD_LIBRARY_FOLDER lib/distilld)
set(DISTILLD_DOC_FOLDER ${CMAKE_INSTALL_DATAROOTDIR}/doc/distilld)
set(DISTILLD_DATA_FOLDER ${CMAKE_INSTALL_DATAROOTDIR}/distilld)
set(distilld_run_path "$ORIGIN/../${DISTILLD_LIBRARY_FOLDER}")

# distilld_install_program(TARGET COMPONENT [OTHER…]): the program, and those of its libraries that an installation
# brings along, less those that the programs OTHER… bring.
function(distilld_install_program name component)
    set_target_properties(${name} PROPERTIES INSTALL_RPATH ${distilld_run_path})
    install(TARGETS ${name} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT ${component})
    list(TRANSFORM ARGN REPLACE "(.+)" "$<TARGET_FILE:\\1>" OUTPUT_VARIABLE others)
    install(CODE "
        set(program [[$<TARGET_FILE:${name}>]])
        set(others \"${others}\")
        set(folder [[${DISTILLD_LIBRARY_FOLDER}]])
        set(search [[${DISTILLD_TORCH_LIB_DIR}]])
        set(strip_program [[${CMAKE_STRIP}]])
        include([[${CMAKE_SOURCE_DIR}/cmake/install_libraries.cmake]])" COMPONENT ${component})
endfunction()

distilld_install_program(distilld control)
if(DISTILLD_WITH_TORCH)
    distilld_install_program(distilld-worker worker distilld)
endif()

# Documents keep the layout of the repository, so that their links hold.
install(FILES README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md LICENSE DESTINATION ${DISTILLD_DOC_FOLDER}
    COMPONENT control)
install(DIRECTORY docs examples tools DESTINATION ${DISTILLD_DOC_FOLDER} COMPONENT control)
install(FILES api/openapi.yaml DESTINATION ${DISTILLD_DATA_FOLDER}/api COMPONENT control)
install(DIRECTORY grafana/dashboards grafana/provisioning grafana/rules DESTINATION ${DISTILLD_DATA_FOLDER}/grafana
    COMPONENT control)
install(FILES bench/README.md DESTINATION ${DISTILLD_DOC_FOLDER}/bench COMPONENT control)
install(CODE "
    foreach(name api grafana)
        file(CREATE_LINK ../../distilld/\${name}
            \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${DISTILLD_DOC_FOLDER}/\${name}\" SYMBOLIC)
    endforeach()" COMPONENT control)

# Manual pages and completions: out of the programs' own command lines. libtorch is where the build found it.
set(distilld_pages ${CMAKE_BINARY_DIR}/share)
function(distilld_written program component folder name)
    set(file ${distilld_pages}/${folder}/${name})
    add_custom_command(OUTPUT ${file}
        COMMAND ${CMAKE_COMMAND} -E make_directory ${distilld_pages}/${folder}
        COMMAND ${CMAKE_COMMAND} -E env LD_LIBRARY_PATH=${DISTILLD_TORCH_LIB_DIR} $<TARGET_FILE:${program}> ${ARGN}
            > ${file}.new
        COMMAND ${CMAKE_COMMAND} -E rename ${file}.new ${file}
        DEPENDS ${program} VERBATIM)
    set_property(GLOBAL APPEND PROPERTY distilld_written ${file})
    install(FILES ${file} DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/${folder} COMPONENT ${component})
endfunction()

distilld_written(distilld control man/man1 distilld.1 man)
distilld_written(distilld control bash-completion/completions distilld completion bash)
distilld_written(distilld control zsh/vendor-completions _distilld completion zsh)
distilld_written(distilld control fish/vendor_completions.d distilld.fish completion fish)
if(DISTILLD_WITH_TORCH)
    distilld_written(distilld-worker worker man/man1 distilld-worker.1 man)
endif()
get_property(distilld_written_files GLOBAL PROPERTY distilld_written)
add_custom_target(distilld_pages ALL DEPENDS ${distilld_written_files})

# The unit names its program by an absolute path: by the prefix given to cmake, not by one given to the install step.
set(DISTILLD_UNIT_PREFIX ${CMAKE_INSTALL_PREFIX})
configure_file(packaging/distilld.service.in ${CMAKE_BINARY_DIR}/packaging/distilld.service @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/packaging/distilld.service DESTINATION lib/systemd/system COMPONENT control)
