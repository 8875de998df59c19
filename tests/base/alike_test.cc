#include "allocator/base/alike.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace stalloc {
namespace {

std::uint64_t Kind(const std::string& text) { return KindOfLine(text.data(), text.size()); }

// No other test's, nor another run's.
std::uint64_t Launch(std::uint64_t number) { return static_cast<std::uint64_t>(getpid()) << 20 | number; }

TEST(AlikeTest, LinesThatDifferInTheirNumbersAreOfOneKind) {
  EXPECT_EQ(Kind("rank00003.plan: 4096 bytes"), Kind("rank12345.plan: 7 bytes"));
  EXPECT_NE(Kind("rank00003.plan: 4096 bytes"), Kind("rank00003.plan: 4096 KiB"));
  EXPECT_NE(Kind("1 2"), Kind("12"));
  EXPECT_NE(Kind(""), 0u);
}

TEST(AlikeTest, WhoWasFirstStaysSo) {
  EXPECT_TRUE(SaysFirst(Launch(1), Kind("first")));
  EXPECT_TRUE(SaysFirst(Launch(1), Kind("first")));
}

// The name is another's while that process lives, and free when it has ended.
TEST(AlikeTest, ANameIsAnothersWhileThatOneLives) {
  const std::uint64_t launch = Launch(2);  // the child has another process number
  int ready[2];
  int gate[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(gate), 0);
  const pid_t other = fork();
  if (other == 0) {
    char byte = SaysFirst(launch, Kind("held")) ? 'y' : 'n';
    if (write(ready[1], &byte, 1) != 1 || read(gate[0], &byte, 1) != 1) _exit(1);
    _exit(0);
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_EQ(byte, 'y');
  EXPECT_FALSE(SaysFirst(launch, Kind("held")));
  ASSERT_EQ(write(gate[1], "x", 1), 1);
  ASSERT_EQ(waitpid(other, nullptr, 0), other);
  EXPECT_FALSE(SaysFirst(launch, Kind("held"))) << "what was left out once stays so";
  for (const int end : {ready[0], ready[1], gate[0], gate[1]}) close(end);
}

TEST(AlikeTest, ThreadsOfOneProcessAreOneRank) {
  std::atomic<int> said{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] { said += SaysFirst(Launch(3), Kind("from any thread")) ? 1 : 0; });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(said.load(), 4);
}

// In a process of its own: what is remembered stays.
TEST(AlikeTest, BeyondWhatIsRememberedEverybodySpeaks) {
  const pid_t other = fork();
  if (other == 0) {
    int said = 0;
    for (char letter = 'a'; letter <= 'z'; ++letter) {
      for (const char* more : {"x", "y"}) said += SaysFirst(Launch(4), Kind(std::string(1, letter) + more)) ? 1 : 0;
    }
    _exit(said);
  }
  int status = 0;
  ASSERT_EQ(waitpid(other, &status, 0), other);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 52);
}

}  // namespace
}  // namespace stalloc
