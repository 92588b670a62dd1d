# Run by cpack when everything is installed below a folder, and before that is packed.
set(root ${CPACK_TEMPORARY_DIRECTORY})
set(source ${CPACK_HEADGATE_SOURCE_DIR})
set(doc ${root}/usr/share/doc/headgate)

# Mode 0644 as yet: the maintainer scripts give it to the group headgate, which exists only then.
file(COPY ${source}/conf/headgate.ini DESTINATION ${root}/etc/headgate)

# To where Debian 12 has its units. They name the folder that everything was installed to.
file(GLOB units RELATIVE ${root}/usr/lib/systemd/system ${root}/usr/lib/systemd/system/*)
foreach(unit ${units})
    file(READ ${root}/usr/lib/systemd/system/${unit} text)
    string(REPLACE "${root}/usr/" "/usr/" text "${text}")
    file(WRITE ${root}/lib/systemd/system/${unit} "${text}")
endforeach()
file(REMOVE_RECURSE ${root}/usr/lib)

file(COPY ${source}/packaging/debian/headgate DESTINATION ${root}/usr/share/lintian/overrides)
file(COPY ${source}/packaging/debian/copyright ${source}/README.md DESTINATION ${doc})
file(COPY_FILE ${source}/CHANGELOG.md ${doc}/changelog)
file(COPY_FILE ${source}/packaging/debian/changelog ${doc}/changelog.Debian)
file(GLOB pages ${root}/usr/share/man/man*/*)
foreach(file ${pages} ${doc}/changelog ${doc}/changelog.Debian)
    execute_process(COMMAND gzip -9n ${file} COMMAND_ERROR_IS_FATAL ANY)
endforeach()

# Modes are those of Debian, whatever the umask of who makes the package.
execute_process(COMMAND chmod -R u=rwX,go=rX ${root} COMMAND_ERROR_IS_FATAL ANY)
