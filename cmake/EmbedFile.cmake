# cmake -DFROM=FILE -DTO=FILE.cc -DNAME=Name -DROOM=room -P EmbedFile.cmake: the bytes of FILE
# as lockstep::<ROOM>::k<NAME>Bytes and k<NAME>Size.
file(READ ${FROM} hex HEX)
string(LENGTH "${hex}" size)
math(EXPR size "${size} / 2")
string(REGEX REPLACE "(................................................)" "\\1\n" hex "${hex}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," hex "${hex}")
file(WRITE ${TO}
  "// Generated from ${FROM}.\nnamespace lockstep::${ROOM} {\nextern const char k${NAME}Bytes[];\nextern const unsigned long k${NAME}Size;\n"
  "const char k${NAME}Bytes[] = {\n${hex}0};\nconst unsigned long k${NAME}Size = ${size};\n}  // namespace lockstep::${ROOM}\n")
