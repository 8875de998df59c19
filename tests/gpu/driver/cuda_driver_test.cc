#include "allocator/driver/cuda_driver.h"

#include <gtest/gtest.h>

#include <iostream>
#include <thread>

#include "tests/driver/driver_conformance.h"
#include "tests/gpu/driver/cuda_under_test.h"

namespace stalloc {
namespace {

INSTANTIATE_TEST_SUITE_P(Cuda, DriverConformance, testing::Values(&CudaUnderTest));

class CudaDriverTest : public CudaTest {
 protected:
  // A usable range of `bytes`, taken back at the end of the test.
  Address MapUsable(CudaDriver& driver, Bytes bytes) {
    Address address = 0;
    PhysicalHandle handle = 0;
    EXPECT_TRUE(driver.Reserve(bytes, &address).ok());
    EXPECT_TRUE(driver.Create(bytes, &handle).ok());
    EXPECT_TRUE(driver.Map(address, bytes, handle).ok());
    EXPECT_TRUE(driver.SetAccess(address, bytes).ok());
    EXPECT_TRUE(driver.Release(handle).ok());
    return address;
  }
  static void Unmap(CudaDriver& driver, Address address, Bytes bytes) {
    EXPECT_TRUE(driver.Unmap(address, bytes).ok());
    EXPECT_TRUE(driver.ReleaseReservation(address, bytes).ok());
  }
};

TEST_F(CudaDriverTest, DevicesBeyondTheLastAreUnavailable) {
  int count = 0;
  ASSERT_EQ(api_->DeviceGetCount(&count), cuda::kSuccess);
  DriverStatus status;
  EXPECT_EQ(CudaDriver::Create(count, &status), nullptr);
  EXPECT_EQ(status.code, DriverCode::kUnavailable);
  std::cout << "  rdma " << int{driver_->properties().flags.gpu_direct_rdma_capable} << ", handle types "
            << driver_->properties().requested_handle_types << ", granularity " << driver_->Granularity() << "\n";
}

TEST_F(CudaDriverTest, WorksOnAThreadWithoutAContextAndLeavesItWithout) {
  std::thread([&] {
    cuda::Context current = this;
    ASSERT_EQ(api_->CtxGetCurrent(&current), cuda::kSuccess);
    ASSERT_EQ(current, nullptr);
    const Address address = MapUsable(*driver_, 2 * driver_->Granularity());
    EXPECT_TRUE(driver_->Synchronize().ok());
    Unmap(*driver_, address, 2 * driver_->Granularity());
    ASSERT_EQ(api_->CtxGetCurrent(&current), cuda::kSuccess);
    EXPECT_EQ(current, nullptr);
  }).join();
}

TEST_F(CudaDriverTest, MappingWhileAStreamIsCapturedInGlobalModeLeavesTheCaptureWhole) {
  const cuda::ContextScope current(*api_, driver_->context());
  const Bytes bytes = driver_->Granularity();
  const Address target = MapUsable(*driver_, bytes);
  cuda::Stream stream = nullptr;
  ASSERT_EQ(api_->StreamCreate(&stream, 1), cuda::kSuccess);
  ASSERT_EQ(api_->StreamBeginCapture(stream, cuda::kCaptureModeGlobal), cuda::kSuccess);
  ASSERT_EQ(api_->MemsetD8Async(target, 1, bytes, stream), cuda::kSuccess);
  const Address address = MapUsable(*driver_, bytes);
  Unmap(*driver_, address, bytes);
  std::thread([&] { Unmap(*driver_, MapUsable(*driver_, bytes), bytes); }).join();
  MemoryInfo info;
  EXPECT_TRUE(driver_->GetMemoryInfo(&info).ok());
  cuda::Graph graph = nullptr;
  EXPECT_EQ(api_->StreamEndCapture(stream, &graph), cuda::kSuccess);
  EXPECT_NE(graph, nullptr);
  (void)api_->GraphDestroy(graph);
  (void)api_->StreamDestroy(stream);
  Unmap(*driver_, target, bytes);
}

TEST_F(CudaDriverTest, AnEnabledPeerWritesMemoryMappedBeforeAndAfter) {
  int count = 0;
  ASSERT_EQ(api_->DeviceGetCount(&count), cuda::kSuccess);
  if (count < 2) {
    GTEST_SKIP() << "one device only: no peer to enable";
  }
  std::string absent_because;
  const auto peer = OpenCuda(1, &absent_because);
  ASSERT_NE(peer, nullptr) << absent_because;
  const Bytes bytes = driver_->Granularity();
  const Address before = MapUsable(*driver_, bytes);
  ASSERT_TRUE(driver_->EnablePeer(1).ok());
  ASSERT_TRUE(driver_->EnablePeer(1).ok()) << "twice is once";
  ASSERT_TRUE(driver_->SetAccess(before, bytes).ok());
  const Address after = MapUsable(*driver_, bytes);
  for (const Address address : {before, after}) {
    const cuda::ContextScope current(*api_, peer->context());
    ASSERT_EQ(api_->MemsetD8Async(address, 0x5C, bytes, nullptr), cuda::kSuccess);
    ASSERT_TRUE(peer->Synchronize().ok());
  }
  for (const Address address : {before, after}) {
    const cuda::ContextScope current(*api_, driver_->context());
    unsigned char last = 0;
    ASSERT_EQ(api_->MemcpyDtoH(&last, address + bytes - 1, 1), cuda::kSuccess);
    EXPECT_EQ(last, 0x5C);
    Unmap(*driver_, address, bytes);
  }
}

TEST_F(CudaDriverTest, APeerThatDoesNotExistIsRefused) {
  EXPECT_FALSE(driver_->EnablePeer(4096).ok());
  Unmap(*driver_, MapUsable(*driver_, driver_->Granularity()), driver_->Granularity());
}

TEST_F(CudaDriverTest, TheStreamOrderedPoolAnswersThroughTheTable) {
  const cuda::ContextScope current(*api_, driver_->context());
  cuda::MemoryPool pool = nullptr;
  ASSERT_EQ(api_->DeviceGetMemPool(&pool, 0), cuda::kSuccess);
  cuda::DevicePointer pointer = 0;
  ASSERT_EQ(api_->MemAllocAsync(&pointer, 32 << 20, nullptr), cuda::kSuccess);
  std::uint64_t used = 0;
  std::uint64_t reserved = 0;
  EXPECT_EQ(api_->MemPoolGetAttribute(pool, cuda::kPoolUsedCurrent, &used), cuda::kSuccess);
  EXPECT_EQ(api_->MemPoolGetAttribute(pool, cuda::kPoolReservedCurrent, &reserved), cuda::kSuccess);
  EXPECT_GE(used, 32u << 20);
  EXPECT_GE(reserved, used);
  EXPECT_EQ(api_->MemFreeAsync(pointer, nullptr), cuda::kSuccess);
  EXPECT_EQ(api_->StreamSynchronize(nullptr), cuda::kSuccess);
  EXPECT_EQ(api_->MemPoolTrimTo(pool, 0), cuda::kSuccess);
}

}  // namespace
}  // namespace stalloc
