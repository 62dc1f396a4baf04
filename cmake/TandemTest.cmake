# tandem_add_test is the only way to add a test: it always sets labels and a time limit.
#   tandem_add_test(NAME name COMMAND cmd... [LABELS l...] [TIMEOUT s] [SKIP77])
# A command that exits with 77 is shown as skipped.
function(tandem_add_test)
  cmake_parse_arguments(ARG "" "NAME;TIMEOUT" "COMMAND;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 60)
  endif()
  set(emulated "")
  if(CMAKE_CROSSCOMPILING)
    set(emulated ";TANDEM_EMULATED=1")
    math(EXPR ARG_TIMEOUT "${ARG_TIMEOUT} * 30")  # an emulator is that much slower
  elseif(TANDEM_SANITIZE)
    math(EXPR ARG_TIMEOUT "${ARG_TIMEOUT} * 10")  # so much a sanitizer
  endif()
  _add_test(NAME ${ARG_NAME} COMMAND ${ARG_COMMAND} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(${ARG_NAME} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT}
    SKIP_RETURN_CODE 77
    ENVIRONMENT "TANDEM_BIN_DIR=${CMAKE_BINARY_DIR}/bin;TANDEM_SOURCE_DIR=${CMAKE_SOURCE_DIR}${emulated}")
endfunction()
function(add_test)
  message(FATAL_ERROR "use tandem_add_test")
endfunction()

# Catch2 2.13 (Debian 12) has one target, v3 (Debian 13) another; tests include tests/support/catch.h.
#   tandem_catch_test(name SOURCES... LINK targets... [LABELS l...] [TIMEOUT s])
if(TANDEM_BUILD_TESTS)
  find_package(Python3 3.9 REQUIRED COMPONENTS Interpreter)
  find_package(Catch2 REQUIRED)
  find_package(nlohmann_json 3.11 REQUIRED)
  add_library(tandem_catch_main STATIC ${CMAKE_SOURCE_DIR}/tests/support/catch_main.cpp)
  if(TARGET Catch2::Catch2WithMain)
    target_link_libraries(tandem_catch_main PUBLIC Catch2::Catch2WithMain)
  else()
    target_link_libraries(tandem_catch_main PUBLIC Catch2::Catch2)
  endif()
  target_include_directories(tandem_catch_main PUBLIC ${CMAKE_SOURCE_DIR})
endif()
function(tandem_catch_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;LINK;LABELS" ${ARGN})
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  tandem_executable(${name} SOURCES ${ARG_SOURCES} LINK ${ARG_LINK} tandem_catch_main)
  tandem_add_test(NAME ${name} COMMAND ${name} LABELS ${ARG_LABELS} TIMEOUT ${ARG_TIMEOUT})
endfunction()

# tandem_fuzz(name SOURCES file LINK targets...): the target replays tests/fuzz/corpus/<name>/ in ctest
# under any compiler (tests/fuzz/replay_main.cpp), and is a libFuzzer binary fuzz_<name> when
# TANDEM_BUILD_FUZZERS is on.
function(tandem_fuzz name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  if(TANDEM_BUILD_FUZZERS)
    tandem_executable(fuzz_${name} SOURCES ${ARG_SOURCES} LINK ${ARG_LINK})
    target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
  endif()
  tandem_executable(replay_${name} SOURCES ${ARG_SOURCES} ${CMAKE_SOURCE_DIR}/tests/fuzz/replay_main.cpp
    LINK ${ARG_LINK})
  tandem_add_test(NAME replay_${name}
    COMMAND replay_${name} ${CMAKE_SOURCE_DIR}/tests/fuzz/corpus/${name} LABELS fuzz TIMEOUT 120)
endfunction()
