#include <gmock/gmock.h>
#include <gtest/gtest.h>

int main(int count, char** arguments) {
  testing::InitGoogleMock(&count, arguments);
  return RUN_ALL_TESTS();
}
