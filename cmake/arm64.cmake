# SPDX-License-Identifier: Apache-2.0
# Toolchain file: builds for arm64 on another machine and runs programs under qemu. Debian has no
# cross package of zstd, so `scripts/arm64_root.sh` unpacks the arm64 package into build/arm64-root.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

get_filename_component(arm64_root "${CMAKE_CURRENT_LIST_DIR}/../build/arm64-root" ABSOLUTE)
set(CMAKE_FIND_ROOT_PATH /usr/aarch64-linux-gnu "${arm64_root}")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)

# Use the loader and the C library of the cross compiler. Programs get 512 GiB of addresses, as from
# a kernel with 39-bit addresses.
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -R 0x8000000000 -L /usr/aarch64-linux-gnu)
