// CudaPool over a model of the driver: the order of what it asks, captures, running out.
#include "allocator/capi/cuda_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "allocator/capi/allocation_failure.h"
#include "tests/capi/fake_cuda.h"

namespace stalloc {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class CudaPoolTest : public ::testing::Test {
 protected:
  FakeCuda cuda_;
  CudaEvents events_{cuda_.api(), FakeCuda::context()};
  CudaPool pool_{cuda_.api(), 0, FakeCuda::context(), events_};
};

TEST_F(CudaPoolTest, AFreeGoesToTheStreamOfTheAllocation) {
  void* const pointer = pool_.Allocate(2048, 3);
  pool_.Free(pointer);
  EXPECT_THAT(cuda_.log, ElementsAre("alloc 3 2048", "free 3"));
  EXPECT_THAT(cuda_.live, IsEmpty());
}

TEST_F(CudaPoolTest, AThreadWithoutAContextCapturesNothing) {
  cuda_.thread_context = nullptr;
  EXPECT_FALSE(events_.Capturing(3));
  EXPECT_EQ(cuda_.thread_context, nullptr) << "as it was";
  cuda_.capturing.insert(3);
  EXPECT_TRUE(events_.Capturing(3));
}

TEST_F(CudaPoolTest, AFreeWaitsForEveryOtherStreamOnce) {
  void* const pointer = pool_.Allocate(2048, 3);
  pool_.RecordStream(pointer, 7);
  pool_.RecordStream(pointer, 8);
  pool_.RecordStream(pointer, 7);
  pool_.RecordStream(pointer, 3);  // its own
  pool_.Free(pointer);
  EXPECT_THAT(cuda_.log, ElementsAre("alloc 3 2048", "record 7", "wait 3 7", "record 8", "wait 3 8", "free 3"));
}

TEST_F(CudaPoolTest, OutOfMemoryTrimsThePoolAndTriesAgain) {
  cuda_.in_use_until_sync = true;
  pool_.Free(pool_.Allocate(900000, 0));
  EXPECT_NE(pool_.Allocate(900000, 0), nullptr);
  EXPECT_THAT(cuda_.log, ElementsAre("alloc 0 900000", "free 0", "synchronize", "trim", "alloc 0 900000"));
}

TEST_F(CudaPoolTest, OutOfMemorySaysWhatWasAskedAndWhatThereIs) {
  try {
    (void)pool_.Allocate(Bytes{1} << 30, 0);
    FAIL() << "nothing thrown";
  } catch (const std::bad_alloc& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("stalloc: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a "
                                              "total capacity of 1.00 MiB of which 0 B is free")));
  }
}

TEST_F(CudaPoolTest, ACaptureIsNeverSynchronised) {
  cuda_.capturing.insert(4);
  EXPECT_THROW((void)pool_.Allocate(Bytes{1} << 30, 4), AllocationFailure);
  EXPECT_THAT(cuda_.log, IsEmpty());
}

TEST_F(CudaPoolTest, MemoryOfAGraphIsLeftToTheGraph) {
  cuda_.capturing.insert(4);
  void* const inside = pool_.Allocate(512, 4);
  void* const kept = pool_.Allocate(512, 4);
  pool_.Free(inside);  // a node of the graph
  cuda_.capturing.clear();
  pool_.Free(kept);
  EXPECT_THAT(cuda_.log, ElementsAre("alloc 4 512", "alloc 4 512", "free 4"));
  EXPECT_EQ(pool_.PutOff(), 0u);
}

TEST_F(CudaPoolTest, AFreeThatACaptureForbidsIsPutOff) {
  void* const before = pool_.Allocate(512, 4);
  void* const other = pool_.Allocate(1024, 5);
  pool_.RecordStream(other, 4);
  cuda_.capturing.insert(4);
  pool_.Free(before);
  pool_.Free(other);  // an event on a captured stream would be captured
  EXPECT_EQ(pool_.PutOff(), 2u);
  EXPECT_EQ(cuda_.live.size(), 2u);
  cuda_.capturing.clear();
  pool_.Free(pool_.Allocate(2048, 5));
  EXPECT_EQ(pool_.PutOff(), 0u);
  EXPECT_THAT(cuda_.live, IsEmpty());
}

TEST_F(CudaPoolTest, AnUnknownAddressIsNotTheDriversBusiness) {
  int foreign = 0;
  pool_.Free(&foreign);
  pool_.Free(nullptr);
  pool_.RecordStream(&foreign, 1);
  EXPECT_THAT(cuda_.log, IsEmpty());
}

TEST_F(CudaPoolTest, HeldBytesAreThePools) {
  void* const pointer = pool_.Allocate(4096, 0);
  pool_.Free(pointer);
  EXPECT_EQ(pool_.HeldBytes().current, 4096u);
  EXPECT_EQ(pool_.HeldBytes().peak, 4096u);
}

}  // namespace
}  // namespace stalloc
