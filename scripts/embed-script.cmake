# Writes a C file that holds the Lua scripts: cmake -DOUT=FILE -DSCRIPTS="a.lua;b.lua" -P embed-script.cmake
# As byte arrays, since C11 promises string literals of 4,095 characters only.
set(arrays "")
set(rows "")
foreach(path IN LISTS SCRIPTS)
    get_filename_component(name "${path}" NAME_WE)
    file(READ "${path}" hex HEX)
    file(SHA1 "${path}" digest)
    string(LENGTH "${hex}" digits)
    math(EXPR length "${digits} / 2")
    string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
    string(APPEND arrays "static const unsigned char ${name}_lua[] = {${bytes}0};\n")
    string(APPEND rows "    {\"${name}\", (const char *)${name}_lua, ${length}, \"${digest}\"},\n")
endforeach()
file(WRITE "${OUT}"
    "#include \"upstream/script.h\"\n\n${arrays}\nconst struct script scripts[] = {\n${rows}    {0, 0, 0, 0},\n};\n")
