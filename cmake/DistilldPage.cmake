# distilld_page_source(RESULT): the C++ source that holds the built-in page. It is made of web/ with esbuild and uPlot,
# which scripts/setup.sh takes from npm; DISTILLD_WITH_PAGE=OFF does without all of that, and without the page.
option(DISTILLD_WITH_PAGE "Build the page of distilld serve, which takes Node.js and web/node_modules" ON)
set(DISTILLD_PAGE_MODULES "${CMAKE_SOURCE_DIR}/web/node_modules" CACHE PATH
    "Folder node_modules with what web/package.json names")

function(distilld_page_source result)
    if(NOT DISTILLD_WITH_PAGE)
        set(${result} ${CMAKE_SOURCE_DIR}/api/page_none.cpp PARENT_SCOPE)
        return()
    endif()
    find_program(DISTILLD_NODE NAMES node nodejs)
    foreach(module esbuild uplot)
        if(NOT DISTILLD_NODE OR NOT EXISTS ${DISTILLD_PAGE_MODULES}/${module}/package.json)
            message(FATAL_ERROR "The page of distilld serve is bundled with Node.js and ${module}, "
                "and ${DISTILLD_PAGE_MODULES} or the program node lacks it. Run scripts/setup.sh, "
                "or npm ci --ignore-scripts --prefix web; or build without the page: -DDISTILLD_WITH_PAGE=OFF")
        endif()
    endforeach()
    set(names api.js bundle.mjs chart.js compare_view.js dom.js endpoints.js format.js index.html job_curves.js
        job_head.js job_history.js job_result.js job_view.js jobs.css jobs_view.js losses.js main.js package-lock.json
        nodes_view.js ranks.js rollouts.js series.js spec_check.js
        spec_doc.js spec_form.js sse.js stage_graph.js stages.js stream.js style.css submit.css
        submit_view.js timing.js verbs.js)
    list(TRANSFORM names PREPEND ${CMAKE_SOURCE_DIR}/web/)
    set(folder ${CMAKE_BINARY_DIR}/generated/page)
    add_custom_command(OUTPUT ${folder}/page_bytes.cpp BYPRODUCTS ${folder}/page.html
        COMMAND ${DISTILLD_NODE} ${CMAKE_SOURCE_DIR}/web/bundle.mjs ${DISTILLD_PAGE_MODULES} ${folder}
        DEPENDS ${names} COMMENT "Bundling the page" VERBATIM)
    set(${result} ${folder}/page_bytes.cpp PARENT_SCOPE)
endfunction()
