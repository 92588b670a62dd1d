# Installs the units with the paths of the prefix. /usr/local/lib/systemd/system is one of the places where systemd looks.
foreach(unit headgate.service headgate.socket)
    file(READ ${HEADGATE_SOURCE_DIR}/conf/${unit} text)
    string(REPLACE "/usr/local/" "${CMAKE_INSTALL_PREFIX}/" text "${text}")
    file(WRITE ${HEADGATE_BINARY_DIR}/units/${unit} "${text}")
    file(INSTALL ${HEADGATE_BINARY_DIR}/units/${unit} DESTINATION ${CMAKE_INSTALL_PREFIX}/lib/systemd/system)
endforeach()
