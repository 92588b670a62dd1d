# What is installed beside the program, and the package for Debian: cmake --install, and cpack -G DEB. scripts/package
# does all of it.
include(GNUInstallDirs)

# The manual pages are printed by the program. A binary with a sanitizer does not start everywhere, so it is not asked.
if(NOT HEADGATE_SANITIZE)
    set(manuals)
    foreach(page headgate.8 headgate.ini.5 headgate-admin.8)
        set(manual ${CMAKE_BINARY_DIR}/man/${page})
        add_custom_command(
            OUTPUT ${manual}
            COMMAND headgate --reference ${page} > ${manual}
            DEPENDS headgate
            VERBATIM)
        list(APPEND manuals ${manual})
    endforeach()
    file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/man)
    add_custom_target(manuals ALL DEPENDS ${manuals})
    install(FILES ${CMAKE_BINARY_DIR}/man/headgate.8 ${CMAKE_BINARY_DIR}/man/headgate-admin.8
        DESTINATION ${CMAKE_INSTALL_MANDIR}/man8)
    install(FILES ${CMAKE_BINARY_DIR}/man/headgate.ini.5 DESTINATION ${CMAKE_INSTALL_MANDIR}/man5)
endif()

install(FILES packaging/headgate.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME headgate)
# The units name paths: those of where this is installed, which is known only then.
install(CODE "set(HEADGATE_SOURCE_DIR [[${CMAKE_SOURCE_DIR}]])\nset(HEADGATE_BINARY_DIR [[${CMAKE_BINARY_DIR}]])")
install(SCRIPT packaging/install-units.cmake)

# ---- the package ----

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME headgate)
set(CPACK_PACKAGE_VENDOR "The Headgate authors")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "sidecar proxy that enforces policies in front of Redis")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
"Applications connect to Headgate in place of Redis. It forwards what they
send byte for byte, over few connections, and enforces what its
configuration says: rate limits, locks that do not expire while their holder
lives, records of latency.
.
After the installation it listens on 127.0.0.1:6380, in front of Redis at
127.0.0.1:6379, and enforces nothing yet.")
set(CPACK_PACKAGE_FILE_NAME headgate)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "The Headgate authors <headgate@packages.example>")
set(CPACK_DEBIAN_PACKAGE_SECTION database)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_DEPENDS adduser)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "redis-server, redis-tools")
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA
    ${CMAKE_SOURCE_DIR}/packaging/debian/postinst ${CMAKE_SOURCE_DIR}/packaging/debian/prerm
    ${CMAKE_SOURCE_DIR}/packaging/debian/postrm ${CMAKE_SOURCE_DIR}/packaging/debian/conffiles)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
# What only the package has: the file in /etc, the changelog, what is compressed.
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_SOURCE_DIR}/packaging/debian/stage.cmake)
set(CPACK_HEADGATE_SOURCE_DIR ${CMAKE_SOURCE_DIR})
include(CPack)
