# Everything comes from the distribution. Debian 12's versions are the floor, Debian 13's compile too.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(spdlog 1.10 REQUIRED)
pkg_check_modules(HTTPLIB REQUIRED IMPORTED_TARGET cpp-httplib>=0.11)
pkg_check_modules(SQLITE REQUIRED IMPORTED_TARGET sqlite3>=3.40)
pkg_check_modules(SYSTEMD REQUIRED IMPORTED_TARGET libsystemd>=252)
pkg_check_modules(RAPIDJSON REQUIRED IMPORTED_TARGET RapidJSON>=1.1)
pkg_check_modules(TOMLPP REQUIRED IMPORTED_TARGET tomlplusplus>=3.3)
