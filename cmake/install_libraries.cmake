# Part of the install step (DistilldInstall.cmake): copies the libraries that `program` needs, and that neither the
# system nor `others` bring, to `folder`. Those of the system are the ones whose names are the same on every system
# that the packages are for; the others (simdjson, spdlog, …) change theirs with each release of a distribution.
set(system_libraries "^ld-linux" "^lib(c|m|dl|rt|pthread|resolv|util|stdc\\+\\+|gcc_s|ssl|crypto|sqlite3|archive)\\.so"
    "^lib(cuda|nvidia-ml)\\.so")  # the last two are the driver's

function(needed_libraries result)
    file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${ARGN} DIRECTORIES ${search} PRE_EXCLUDE_REGEXES ${system_libraries}
        RESOLVED_DEPENDENCIES_VAR found UNRESOLVED_DEPENDENCIES_VAR missing CONFLICTING_DEPENDENCIES_PREFIX conflict)
    if(missing)
        message(FATAL_ERROR "${ARGN} needs libraries that are not here: ${missing}")
    endif()
    # The program's own run path comes first when it runs, so the first of several it is.
    foreach(name IN LISTS conflict_FILENAMES)
        list(GET conflict_${name} 0 first)
        list(APPEND found ${first})
    endforeach()
    set(${result} ${found} PARENT_SCOPE)
endfunction()

needed_libraries(libraries ${program})
if(others)
    needed_libraries(brought ${others})
    list(REMOVE_ITEM libraries ${brought})
endif()

# cuDNN loads its parts, and NVRTC its headers, by name when they are asked for.
foreach(library IN LISTS libraries)
    get_filename_component(beside ${library} DIRECTORY)
    get_filename_component(name ${library} NAME)
    if(name MATCHES "^libcudnn\\.so")
        file(GLOB parts ${beside}/libcudnn_*.so*)
        list(APPEND libraries ${parts})
    elseif(name MATCHES "^libnvrtc\\.so")
        file(GLOB parts ${beside}/libnvrtc-builtins.so*)
        list(APPEND libraries ${parts})
    endif()
endforeach()
list(REMOVE_DUPLICATES libraries)

set(target "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/${folder}")
file(MAKE_DIRECTORY "${target}")
foreach(library IN LISTS libraries)
    get_filename_component(name ${library} NAME)
    file(REAL_PATH ${library} real)
    set(copy "${target}/${name}")
    message(STATUS "Installing: ${copy}")
    file(COPY_FILE ${real} "${copy}")
    # Only where it saves much: pip's small libraries have been edited in ways that strip spoils.
    if(CMAKE_INSTALL_DO_STRIP AND name MATCHES "^lib(torch|c10)")
        execute_process(COMMAND ${strip_program} --strip-unneeded "${copy}" COMMAND_ERROR_IS_FATAL ANY)
    endif()
    file(CHMOD "${copy}" PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
    list(APPEND CMAKE_INSTALL_MANIFEST_FILES "${CMAKE_INSTALL_PREFIX}/${folder}/${name}")
endforeach()
