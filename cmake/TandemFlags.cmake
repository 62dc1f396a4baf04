# One interface target carries every flag; folders link it PRIVATE or PUBLIC and add none of their own.
add_library(tandem_flags INTERFACE)
target_include_directories(tandem_flags INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_options(tandem_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wnon-virtual-dtor -Werror=switch
  -Werror=unused-result -fno-math-errno
  -Wno-missing-field-initializers  # designated initialisers leave fields at their defaults on purpose
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>  # g++ 12 reports it falsely for std::string operator+
  # libstdc++ 12's own std::stable_sort uses what it deprecates; only clang reports that.
  $<$<CXX_COMPILER_ID:Clang>:-Wno-deprecated-declarations>
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>)
if(TANDEM_SANITIZE)
  target_compile_options(tandem_flags INTERFACE -fsanitize=${TANDEM_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all)
  target_link_options(tandem_flags INTERFACE -fsanitize=${TANDEM_SANITIZE})
endif()
if(TANDEM_BUILD_FUZZERS)  # every library carries the coverage counters that steer the fuzzer
  target_compile_options(tandem_flags INTERFACE -fsanitize=fuzzer-no-link)
  target_link_options(tandem_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
find_program(TANDEM_CCACHE ccache)
if(TANDEM_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${TANDEM_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${TANDEM_CCACHE})
endif()

# tandem_library(NAME SOURCES... LINK targets...)
function(tandem_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC tandem_flags ${ARG_LINK})
endfunction()

# tandem_executable(NAME SOURCES... LINK targets...)
function(tandem_executable name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE tandem_flags ${ARG_LINK})
endfunction()
