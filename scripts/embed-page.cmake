# Writes a C file that holds the files of the page: cmake -DOUT=FILE -DFILES="a.html;b.js" -P embed-page.cmake
# As byte arrays, since C11 promises string literals of 4,095 characters only.
set(arrays "")
set(rows "")
set(number 0)
foreach(path IN LISTS FILES)
    get_filename_component(name "${path}" NAME)
    file(READ "${path}" hex HEX)
    string(LENGTH "${hex}" digits)
    math(EXPR length "${digits} / 2")
    string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
    string(APPEND arrays "static const unsigned char asset_${number}[] = {${bytes}0};\n")
    string(APPEND rows "    {\"${name}\", (const char *)asset_${number}, ${length}},\n")
    math(EXPR number "${number} + 1")
endforeach()
file(WRITE "${OUT}"
    "#include \"http/http_asset.h\"\n\n${arrays}\nconst struct http_asset http_assets[] = {\n${rows}    {0, 0, 0},\n};\n")
