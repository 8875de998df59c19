// What a forked child and its parent see of each other's host memory: nothing, from the fork on.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "allocator/driver/host_driver.h"

namespace stalloc {
namespace {

class HostForkTest : public testing::Test {
 protected:
  void SetUp() override {
    driver_ = HostDriver::Create({.capacity = Bytes{64} << 30});
    ASSERT_NE(driver_, nullptr);
  }

  char* MapUsable(Bytes bytes) {
    Address address = 0;
    PhysicalHandle handle = 0;
    EXPECT_TRUE(driver_->Reserve(bytes, &address).ok());
    EXPECT_TRUE(driver_->Create(bytes, &handle).ok());
    EXPECT_TRUE(driver_->Map(address, bytes, handle).ok());
    EXPECT_TRUE(driver_->SetAccess(address, bytes).ok());
    return reinterpret_cast<char*>(address);
  }

  // Runs `child` in a fork; its result is the exit status that Wait returns.
  template <typename Child>
  static pid_t Fork(Child child) {
    const pid_t pid = fork();
    if (pid == 0) _exit(child());
    return pid;
  }
  static int Wait(pid_t pid) {
    int status = -1;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
  }

  std::unique_ptr<HostDriver> driver_;
};

TEST_F(HostForkTest, TheChildHasTheParentsBytes) {
  char* const memory = MapUsable(8 * kMiB);
  std::memset(memory, 7, 8 * kMiB);
  EXPECT_EQ(Wait(Fork([&] {
              for (Bytes i = 0; i < 8 * kMiB; ++i) {
                if (memory[i] != 7) return 1;
              }
              return 0;
            })),
            0);
}

TEST_F(HostForkTest, WritesOfTheParentAfterTheForkAreUnseenByTheChild) {
  char* const memory = MapUsable(4 * kMiB);
  std::memset(memory, 1, 4 * kMiB);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = Fork([&] {
    char go = 0;
    if (read(ends[0], &go, 1) != 1) return 2;
    return memory[0] == 1 && memory[4 * kMiB - 1] == 1 ? 0 : 1;
  });
  std::memset(memory, 2, 4 * kMiB);
  ASSERT_EQ(write(ends[1], "x", 1), 1);
  EXPECT_EQ(Wait(child), 0);
  EXPECT_EQ(memory[0], 2);
}

TEST_F(HostForkTest, WritesOfTheChildAreUnseenByTheParent) {
  char* const memory = MapUsable(4 * kMiB);
  std::memset(memory, 1, 4 * kMiB);
  EXPECT_EQ(Wait(Fork([&] {
              std::memset(memory, 3, 4 * kMiB);
              return memory[12345] == 3 ? 0 : 1;
            })),
            0);
  for (Bytes i = 0; i < 4 * kMiB; ++i) {
    ASSERT_EQ(memory[i], 1) << i;
  }
}

TEST_F(HostForkTest, AHandleAtTwoAddressesIsPrivateAtBoth) {
  Address address = 0;
  PhysicalHandle handle = 0;
  ASSERT_TRUE(driver_->Reserve(4 * kMiB, &address).ok());
  ASSERT_TRUE(driver_->Create(2 * kMiB, &handle).ok());
  for (const Address place : {address, address + 2 * kMiB}) {
    ASSERT_TRUE(driver_->Map(place, 2 * kMiB, handle).ok());
    ASSERT_TRUE(driver_->SetAccess(place, 2 * kMiB).ok());
  }
  auto* const first = reinterpret_cast<char*>(address);
  auto* const second = reinterpret_cast<char*>(address + 2 * kMiB);
  first[100] = 9;
  EXPECT_EQ(Wait(Fork([&] {
              const bool inherited = first[100] == 9 && second[100] == 9;
              first[100] = 4;
              second[200] = 5;
              return inherited ? 0 : 1;
            })),
            0);
  EXPECT_EQ(second[100], 9);
  EXPECT_EQ(first[200], 0);
}

TEST_F(HostForkTest, UntouchedMemoryIsNotCopied) {
  char* const memory = MapUsable(Bytes{32} << 30);
  memory[Bytes{20} << 30] = 6;
  const auto begin = std::chrono::steady_clock::now();
  const pid_t child = Fork([&] { return memory[Bytes{20} << 30] == 6 && memory[Bytes{10} << 30] == 0 ? 0 : 1; });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  EXPECT_EQ(Wait(child), 0);
}

TEST_F(HostForkTest, TheChildsDriverIsShutDownAndTheParentsWorksOn) {
  char* const memory = MapUsable(2 * kMiB);
  memory[0] = 1;
  EXPECT_EQ(Wait(Fork([&] {
              PhysicalHandle handle = 0;
              Address address = 0;
              const auto start = reinterpret_cast<Address>(memory);
              const bool refused = driver_->Create(2 * kMiB, &handle).code == DriverCode::kShuttingDown &&
                                   driver_->Reserve(2 * kMiB, &address).code == DriverCode::kShuttingDown &&
                                   driver_->Unmap(start, 2 * kMiB).code == DriverCode::kShuttingDown &&
                                   driver_->Synchronize().code == DriverCode::kShuttingDown;
              const bool readable = memory[0] == 1;
              driver_.reset();
              return refused && readable ? 0 : 1;
            })),
            0);
  EXPECT_EQ(memory[0], 1);
  EXPECT_EQ(driver_->GetCounts().maps, 1u);
  EXPECT_TRUE(driver_->Unmap(reinterpret_cast<Address>(memory), 2 * kMiB).ok());
}

TEST_F(HostForkTest, AGrandchildInheritsTheChildsBytes) {
  char* const memory = MapUsable(2 * kMiB);
  memory[0] = 1;
  EXPECT_EQ(Wait(Fork([&] {
              memory[0] = 2;
              return Wait(Fork([&] {
                       const bool inherited = memory[0] == 2;
                       memory[0] = 3;
                       return inherited ? 0 : 1;
                     })) == 0 &&
                             memory[0] == 2
                         ? 0
                         : 1;
            })),
            0);
  EXPECT_EQ(memory[0], 1);
}

TEST_F(HostForkTest, AMapThatIsNotUsableYetStaysSo) {
  Address address = 0;
  PhysicalHandle handle = 0;
  ASSERT_TRUE(driver_->Reserve(2 * kMiB, &address).ok());
  ASSERT_TRUE(driver_->Create(2 * kMiB, &handle).ok());
  ASSERT_TRUE(driver_->Map(address, 2 * kMiB, handle).ok());
  EXPECT_EQ(Wait(Fork([] { return 0; })), 0);
  ASSERT_TRUE(driver_->SetAccess(address, 2 * kMiB).ok());
  *reinterpret_cast<char*>(address) = 1;
}

TEST_F(HostForkTest, ForksAmongThreadsThatMapAndUnmapGiveWholeCopies) {
  char* const memory = MapUsable(2 * kMiB);
  std::memset(memory, 8, 2 * kMiB);
  std::atomic<bool> stop{false};
  std::thread mapper([&] {
    while (!stop) {
      Address address = 0;
      PhysicalHandle handle = 0;
      ASSERT_TRUE(driver_->Reserve(2 * kMiB, &address).ok());
      ASSERT_TRUE(driver_->Create(2 * kMiB, &handle).ok());
      ASSERT_TRUE(driver_->Map(address, 2 * kMiB, handle).ok());
      ASSERT_TRUE(driver_->SetAccess(address, 2 * kMiB).ok());
      *reinterpret_cast<char*>(address) = 1;
      ASSERT_TRUE(driver_->Unmap(address, 2 * kMiB).ok());
      ASSERT_TRUE(driver_->Release(handle).ok());
      ASSERT_TRUE(driver_->ReleaseReservation(address, 2 * kMiB).ok());
    }
  });
  for (int round = 0; round < 20; ++round) {
    EXPECT_EQ(Wait(Fork([&] { return memory[0] == 8 && memory[2 * kMiB - 1] == 8 ? 0 : 1; })), 0);
  }
  stop = true;
  mapper.join();
}

}  // namespace
}  // namespace stalloc
