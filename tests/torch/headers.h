// What the tests of the adapter are compiled with (see CMakeLists.txt). A test includes what it uses itself.
#pragma once

#include <c10/core/CPUAllocator.h>
#if __has_include(<cuda_runtime_api.h>)
#include <c10/cuda/CUDACachingAllocator.h>
#endif
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>
