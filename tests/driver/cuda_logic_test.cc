// CudaDriver, CudaEvents and CudaCopies over a fake driver: contexts, capture modes, fallbacks and errors.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>

#include "allocator/driver/capture_gate.h"
#include "allocator/driver/cuda_copies.h"
#include "allocator/driver/cuda_description.h"
#include "allocator/driver/cuda_driver.h"
#include "allocator/driver/cuda_events.h"
#include "tests/driver/fake_cuda.h"

namespace stalloc {
namespace {

constexpr Bytes kPage = Bytes{2} << 20;

class CudaLogicTest : public testing::Test {
 protected:
  void SetUp() override { fake() = FakeCuda(); }
  void TearDown() override {
    EXPECT_EQ(fake().retained, 0) << "the primary context is still retained";
    EXPECT_EQ(fake().calls_in_wrong_context, 0);
    EXPECT_EQ(fake().calls_in_strict_mode, 0);
    EXPECT_EQ(fake().capture_mode, cuda::kCaptureModeGlobal) << "the thread's capture mode was not restored";
  }
  static FakeCuda& fake() { return FakeCuda::Instance(); }
  std::unique_ptr<CudaDriver> Open() {
    DriverStatus status;
    auto driver = CudaDriver::Create(api_, 0, &status);
    EXPECT_TRUE(status.ok()) << status.call;
    return driver;
  }
  DriverCode OpenFails() {
    DriverStatus status;
    EXPECT_EQ(CudaDriver::Create(api_, 0, &status), nullptr);
    return status.code;
  }

  const cuda::Api api_ = FakeCuda::Table();
};

TEST_F(CudaLogicTest, NoDeviceIsUnavailable) {
  fake().devices = 0;
  EXPECT_EQ(OpenFails(), DriverCode::kUnavailable);
}

TEST_F(CudaLogicTest, ADeviceWithoutVirtualMemoryIsUnavailable) {
  fake().virtual_memory = false;
  EXPECT_EQ(OpenFails(), DriverCode::kUnavailable);
}

TEST_F(CudaLogicTest, MemoryIsExportableAndReadyForRdmaWhereTheDeviceCan) {
  const auto driver = Open();
  EXPECT_EQ(driver->properties().requested_handle_types, cuda::kHandleTypePosixFileDescriptor);
  EXPECT_EQ(driver->properties().flags.gpu_direct_rdma_capable, 1);
  EXPECT_EQ(driver->Granularity(), kPage);
  EXPECT_EQ(fake().handles, 0) << "the probe was not released";
}

TEST_F(CudaLogicTest, MemoryIsPlainWhereTheDeviceCannot) {
  fake().posix_handles = false;
  fake().rdma = false;
  const auto driver = Open();
  PhysicalHandle handle = 0;
  ASSERT_TRUE(driver->Create(kPage, &handle).ok());
  EXPECT_EQ(fake().last_properties.requested_handle_types, cuda::kHandleTypeNone);
  EXPECT_EQ(fake().last_properties.flags.gpu_direct_rdma_capable, 0);
}

TEST_F(CudaLogicTest, ExportableHandlesThatCreateRefusesAreDoneWithout) {
  fake().refuse_exportable = cuda::kErrorNotPermitted;
  const auto driver = Open();
  EXPECT_EQ(driver->properties().requested_handle_types, cuda::kHandleTypeNone);
  PhysicalHandle handle = 0;
  EXPECT_TRUE(driver->Create(kPage, &handle).ok());
}

TEST_F(CudaLogicTest, AFillIsWorkOfItsStream) {
  const auto driver = Open();
  ASSERT_TRUE(driver->Fill(512, 1024, 0xff, 9).ok());
  EXPECT_EQ(fake().fills, (std::vector<std::uint64_t>{512, 0xff, 1024, 9}));
  EXPECT_TRUE(fake().synchronized.empty()) << "the host does not wait";
  fake().any_result = cuda::kErrorInvalidValue;
  const DriverStatus status = driver->Fill(512, 1024, 0xff, 9);
  EXPECT_EQ(status.code, DriverCode::kInvalid);
  EXPECT_STREQ(status.call, "cuMemsetD8Async");
  fake().any_result = cuda::kSuccess;
}

TEST_F(CudaLogicTest, MemoryIsExportedAsADescriptorThatStartedProgramsDoNotInherit) {
  const auto driver = Open();
  int descriptor = -1;
  ASSERT_TRUE(driver->Export(7, &descriptor).ok());
  EXPECT_EQ(fake().last_exported, 7u);
  EXPECT_EQ(fake().last_exported_as, cuda::kHandleTypePosixFileDescriptor);
  EXPECT_EQ(fcntl(descriptor, F_GETFD), FD_CLOEXEC);
  EXPECT_EQ(close(descriptor), 0);
  fake().any_result = cuda::kErrorDeinitialized;
  EXPECT_EQ(driver->Export(7, &descriptor).code, DriverCode::kShuttingDown);
}

TEST_F(CudaLogicTest, MemoryThatIsNotExportableIsRefusedWithoutACall) {
  fake().refuse_exportable = cuda::kErrorNotPermitted;
  const auto driver = Open();
  int descriptor = -1;
  const DriverStatus status = driver->Export(7, &descriptor);
  EXPECT_EQ(status.code, DriverCode::kFailed);
  EXPECT_EQ(status.native, cuda::kErrorNotSupported);
  EXPECT_STREQ(status.call, "cuMemExportToShareableHandle");
  EXPECT_EQ(fake().last_exported, 0u);
  EXPECT_EQ(descriptor, -1);
}

TEST_F(CudaLogicTest, AFullDeviceIsNoReasonToRefuseIt) {
  fake().create_result = cuda::kErrorOutOfMemory;
  const auto driver = Open();
  EXPECT_EQ(driver->properties().requested_handle_types, cuda::kHandleTypePosixFileDescriptor);
  PhysicalHandle handle = 0;
  EXPECT_EQ(driver->Create(kPage, &handle).code, DriverCode::kOutOfMemory);
}

TEST_F(CudaLogicTest, ADeviceThatCreatesNothingIsRefusedAndItsContextReleased) {
  fake().create_result = 999;
  EXPECT_EQ(OpenFails(), DriverCode::kFailed);
}

TEST_F(CudaLogicTest, TheContextIsPushedOnlyWhereAnotherOrNoneIsCurrentAndPoppedAgain) {
  const auto driver = Open();
  fake().pushes = 0;
  EXPECT_TRUE(driver->Synchronize().ok());
  EXPECT_EQ(fake().pushes, 1);
  EXPECT_TRUE(fake().contexts.empty());
  fake().contexts = {FakeCuda::PrimaryContext()};
  EXPECT_TRUE(driver->Unmap(0, kPage).ok());
  EXPECT_EQ(fake().pushes, 1) << "it was current already";
  const auto other = reinterpret_cast<cuda::Context>(0x2000);
  fake().contexts = {other};
  EXPECT_TRUE(driver->Synchronize().ok());
  EXPECT_EQ(fake().pushes, 2);
  EXPECT_EQ(fake().contexts, std::vector<cuda::Context>{other});
}

TEST_F(CudaLogicTest, ADriverThatUnloadsIsShuttingDown) {
  const auto driver = Open();
  fake().any_result = cuda::kErrorDeinitialized;
  EXPECT_EQ(driver->Unmap(0, kPage).code, DriverCode::kShuttingDown);
  EXPECT_EQ(driver->Release(1).code, DriverCode::kShuttingDown);
  fake().any_result = cuda::kErrorContextIsDestroyed;
  EXPECT_EQ(driver->Synchronize().code, DriverCode::kShuttingDown);
}

TEST_F(CudaLogicTest, PeersAreInEverySetAccessFromThenOn) {
  fake().devices = 3;
  const auto driver = Open();
  ASSERT_TRUE(driver->SetAccess(0, kPage).ok());
  ASSERT_EQ(fake().last_access.size(), 1u);
  EXPECT_EQ(fake().last_access[0].location.id, 0);
  ASSERT_TRUE(driver->EnablePeer(2).ok());
  ASSERT_TRUE(driver->EnablePeer(2).ok());
  ASSERT_TRUE(driver->EnablePeer(0).ok()) << "the device itself is no peer to add";
  ASSERT_TRUE(driver->SetAccess(0, kPage).ok());
  ASSERT_EQ(fake().last_access.size(), 2u);
  EXPECT_EQ(fake().last_access[1].location.id, 2);
  EXPECT_EQ(fake().last_access[1].flags, cuda::kAccessReadWrite);
  fake().peers = false;
  EXPECT_EQ(driver->EnablePeer(1).code, DriverCode::kInvalid);
  EXPECT_EQ(driver->EnablePeer(3).code, DriverCode::kUnavailable);
}

TEST_F(CudaLogicTest, TheDeviceIsNotWaitedForWhileACaptureRuns) {
  DriverStatus status;
  const auto driver = CudaDriver::Create(api_, 0, &status);
  ASSERT_NE(driver, nullptr);
  CaptureGate captures;
  driver->SetCaptureGate(&captures);
  EXPECT_TRUE(driver->Synchronize().ok());
  captures.CaptureBegins();
  EXPECT_EQ(driver->Synchronize().native, cuda::kErrorStreamCaptureUnsupported);
  captures.CaptureEnds();
  EXPECT_TRUE(driver->Synchronize().ok());
}

TEST(CaptureGateTest, ACaptureBeginsOnceNobodyPasses) {
  CaptureGate gate;
  std::atomic<bool> begun{false};
  std::thread capturer;
  {
    const CaptureGate::Passage passage(&gate);
    ASSERT_TRUE(passage);
    capturer = std::thread([&] {
      gate.CaptureBegins();
      begun = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_FALSE(begun);
  }
  capturer.join();
  EXPECT_FALSE(CaptureGate::Passage(&gate));
  gate.CaptureEnds();
  EXPECT_TRUE(CaptureGate::Passage(&gate));
  EXPECT_TRUE(CaptureGate::Passage(nullptr));
}

TEST_F(CudaLogicTest, OtherDevicesAreWaitedForWhereTheyAreInUse) {
  fake().devices = 3;
  const auto driver = Open();
  fake().active = {true, false, true};
  EXPECT_TRUE(driver->SynchronizeOthers().ok());
  EXPECT_EQ(fake().synchronized, std::vector{2}) << "a device without a context does not get one";
  EXPECT_TRUE(driver->Synchronize().ok());
  EXPECT_EQ(fake().synchronized, (std::vector{2, 0}));
  fake().any_result = 700;
  EXPECT_FALSE(driver->SynchronizeOthers().ok());
  fake().any_result = cuda::kSuccess;
  CaptureGate captures;
  driver->SetCaptureGate(&captures);
  captures.CaptureBegins();
  EXPECT_FALSE(driver->SynchronizeOthers().ok());
  EXPECT_EQ(fake().synchronized.size(), 3u);
  captures.CaptureEnds();
}

class CudaEventsLogicTest : public CudaLogicTest {
 protected:
  static constexpr StreamHandle kStream = 0x70;
  CudaEvents events_{api_, FakeCuda::PrimaryContext()};
};

TEST_F(CudaEventsLogicTest, EventsAreRecycled) {
  const auto first = events_.Record(kStream);
  const auto second = events_.Record(kStream);
  EXPECT_NE(first, 0u);
  EXPECT_NE(first, second);
  events_.Recycle(first);
  EXPECT_EQ(events_.Record(kStream), first);
  EXPECT_EQ(fake().events_created, 2);
}

TEST_F(CudaEventsLogicTest, ACapturedStreamGetsNoEvent) {
  fake().captured_stream = reinterpret_cast<cuda::Stream>(kStream);
  EXPECT_EQ(events_.Record(kStream), 0u);
  EXPECT_EQ(events_.Record(0), 0u) << "the legacy stream cannot even be asked";
  EXPECT_NE(events_.Record(0x80), 0u);
  EXPECT_EQ(fake().events_created, 1);
}

// Or whoever waits for the event would become a part of the other thread's graph.
TEST_F(CudaEventsLogicTest, AStreamThatAnotherThreadBeginsToCaptureGetsNoEvent) {
  for (const StreamHandle stream : {kStream, StreamOfDevice(0, kStream)}) {
    fake().captured_by_another = reinterpret_cast<cuda::Stream>(kStream);
    EXPECT_EQ(events_.Record(stream), 0u);
    fake().captured_stream = nullptr;
  }
  EXPECT_NE(events_.Record(kStream), 0u);
  fake().retained = 0;  // the other device's context is kept for good
}

TEST_F(CudaEventsLogicTest, AnEventOfTheWholeDeviceIsRecordedUnlessACaptureRuns) {
  CaptureGate captures;
  CudaEvents events(api_, FakeCuda::PrimaryContext(), &captures);
  const auto event = events.RecordAll();
  EXPECT_NE(event, 0u);
  events.Recycle(event);
  captures.CaptureBegins();
  EXPECT_EQ(events.RecordAll(), 0u);
  EXPECT_EQ(fake().context_events, 1);
  captures.CaptureEnds();
  EXPECT_EQ(events.RecordAll(), event);
  cuda::Api old = api_;
  old.CtxRecordEvent = nullptr;
  CudaEvents none(old, FakeCuda::PrimaryContext(), &captures);
  EXPECT_EQ(none.RecordAll(), 0u) << "the driver has none such";
}

TEST_F(CudaEventsLogicTest, AnEventThatCannotBeRecordedGoesBackToThePool) {
  events_.Recycle(events_.Record(kStream));
  fake().any_result = 999;
  EXPECT_EQ(events_.Record(kStream), 0u);
  fake().any_result = cuda::kSuccess;
  EXPECT_NE(events_.Record(kStream), 0u);
  EXPECT_EQ(fake().events_created, 1);
}

TEST_F(CudaEventsLogicTest, DoneTellsNotReadyFromDoneAndFromADriverThatIsGone) {
  const auto event = events_.Record(kStream);
  EXPECT_TRUE(events_.Done(event));
  fake().any_result = cuda::kErrorNotReady;
  EXPECT_FALSE(events_.Done(event));
  fake().any_result = cuda::kErrorDeinitialized;
  EXPECT_TRUE(events_.Done(event));
  fake().any_result = 700;  // an illegal address: nothing is known to be done
  EXPECT_FALSE(events_.Done(event));
  fake().any_result = cuda::kSuccess;
}

TEST_F(CudaEventsLogicTest, AStreamWaitsForAnEventUnlessItIsCaptured) {
  const auto event = events_.Record(kStream);
  EXPECT_TRUE(events_.Wait(0x80, event));
  EXPECT_EQ(fake().waits, (std::vector<std::uint64_t>{0x80, event}));
  fake().captured_stream = reinterpret_cast<cuda::Stream>(std::uintptr_t{0x80});
  EXPECT_FALSE(events_.Wait(0x80, event));
  fake().captured_stream = nullptr;
  fake().any_result = cuda::kErrorDeinitialized;
  EXPECT_FALSE(events_.Wait(0x80, event));
  EXPECT_TRUE(events_.Wait(0x80, 0)) << "no event is no wait";
  fake().any_result = cuda::kSuccess;
  events_.Recycle(event);
}

TEST_F(CudaEventsLogicTest, AnotherDevicesStreamGetsAnEventOfItsOwnContext) {
  fake().devices = 2;
  const StreamHandle foreign = StreamOfDevice(1, 0);
  EXPECT_NE(foreign, 0u) << "default streams have the same handle on all devices";
  const auto event = events_.Record(foreign);
  ASSERT_NE(event, 0u);
  EXPECT_EQ(fake().last_record_stream, nullptr);
  EXPECT_EQ(fake().retained, 1);
  events_.Recycle(event);
  EXPECT_EQ(fake().events_destroyed, 1) << "it is no event for this device's streams";
  events_.Recycle(events_.Record(kStream));
  EXPECT_EQ(fake().events_created, 2);
  EXPECT_EQ(events_.Record(StreamOfDevice(5, 0)), 0u) << "no such device";
  fake().retained = 0;  // kept for good, as the adapter's objects are
}

TEST_F(CudaEventsLogicTest, AStreamIsNamedByItsDevice) {
  fake().devices = 2;
  EXPECT_EQ(events_.NameOf(kStream), kStream) << "a stream that the driver does not know";
  fake().context_of_streams = FakeCuda::PrimaryContext(0);
  EXPECT_EQ(events_.NameOf(kStream), kStream);
  fake().context_of_streams = FakeCuda::PrimaryContext(1);
  EXPECT_EQ(events_.NameOf(kStream), StreamOfDevice(1, kStream));
  EXPECT_EQ(events_.NameOf(kLegacyDefaultStream), kLegacyDefaultStream) << "no context is current";
  const cuda::ContextScope current(api_, FakeCuda::PrimaryContext(1));
  EXPECT_EQ(events_.NameOf(kLegacyDefaultStream), StreamOfDevice(1, kLegacyDefaultStream));
  EXPECT_EQ(fake().contexts.size(), 1u);
}

class CudaCopiesLogicTest : public CudaLogicTest {
 protected:
  void SetUp() override {
    CudaLogicTest::SetUp();
    driver_ = Open();
    events_ = std::make_unique<CudaEvents>(api_, driver_->context(), &captures_);
    copies_ = std::make_unique<CudaCopies>(*driver_, *events_, &captures_);
  }
  void TearDown() override {
    copies_ = nullptr;
    events_ = nullptr;
    driver_ = nullptr;
    CudaLogicTest::TearDown();
  }
  CaptureGate captures_;
  std::unique_ptr<CudaDriver> driver_;
  std::unique_ptr<CudaEvents> events_;
  std::unique_ptr<CudaCopies> copies_;
};

TEST_F(CudaCopiesLogicTest, TheHostsMemoryIsRegisteredAndGoesBack) {
  void* memory = nullptr;
  ASSERT_TRUE(copies_->TakeHost(kPage, &memory).ok());
  EXPECT_EQ(fake().registered, 1);
  static_cast<char*>(memory)[kPage - 1] = 1;
  copies_->GiveHostBack(memory, kPage);
  EXPECT_EQ(fake().registered, 0);
  fake().any_result = cuda::kErrorOutOfMemory;
  EXPECT_EQ(copies_->TakeHost(kPage, &memory).code, DriverCode::kOutOfMemory);
  fake().any_result = cuda::kSuccess;
}

TEST_F(CudaCopiesLogicTest, CopiesRunOnOneStreamThatWaitsForNoOther) {
  char host[64] = {};
  EXPECT_TRUE(copies_->ToHost(host, 0x2000, 64).ok());
  EXPECT_TRUE(copies_->ToDevice(0x3000, host, 32).ok());
  EXPECT_TRUE(copies_->Fill(0x4000, 512).ok());
  EXPECT_TRUE(copies_->Await().ok());
  const auto at = reinterpret_cast<std::uint64_t>(host);
  EXPECT_EQ(fake().copies, (std::vector<std::uint64_t>{at, 0x2000, 64, 0x3000, at, 32}));
  EXPECT_EQ(fake().streams_created, 1);
  EXPECT_EQ(fake().last_stream_flags, cuda::kStreamNonBlocking);
  EXPECT_EQ(fake().stream_waits, 1);
  fake().any_result = 700;
  EXPECT_EQ(copies_->ToHost(host, 0x2000, 64).code, DriverCode::kFailed);
  fake().any_result = cuda::kSuccess;
}

TEST_F(CudaCopiesLogicTest, MarksAreAwaitedInTheirOrderOneByOne) {
  char host[64] = {};
  for (int part = 0; part < 3; ++part) {
    ASSERT_TRUE(copies_->ToHost(host, 0x2000, 64).ok());
    ASSERT_TRUE(copies_->Mark().ok());
  }
  EXPECT_EQ(fake().events_created, 3);
  EXPECT_TRUE(copies_->AwaitMark().ok());
  EXPECT_TRUE(copies_->AwaitMark().ok());
  ASSERT_EQ(fake().awaited.size(), 2u);
  EXPECT_LT(fake().awaited[0], fake().awaited[1]);
  EXPECT_EQ(fake().stream_waits, 0);
  EXPECT_EQ(fake().calls_in_strict_mode, 0);
  fake().any_result = 700;
  EXPECT_EQ(copies_->AwaitMark().code, DriverCode::kFailed);
  fake().any_result = cuda::kSuccess;
  ASSERT_TRUE(copies_->Mark().ok());
  EXPECT_TRUE(copies_->Await().ok()) << "of all; no mark is left";
  for (int part = 0; part < 3; ++part) ASSERT_TRUE(copies_->Mark().ok());
  EXPECT_EQ(fake().events_created, 3) << "they are used again";
}

TEST_F(CudaCopiesLogicTest, WithoutAnEventAllIsAwaited) {
  EXPECT_TRUE(copies_->Mark().ok()) << "nothing was copied yet: there is no stream";
  EXPECT_TRUE(copies_->AwaitMark().ok());
  EXPECT_EQ(fake().stream_waits, 1);
  EXPECT_TRUE(fake().awaited.empty());
}

TEST_F(CudaCopiesLogicTest, TheWholeDeviceIsPutBehindThemAndTheHostNeedNotWait) {
  char host[64] = {};
  ASSERT_TRUE(copies_->ToDevice(0x3000, host, 32).ok());
  EXPECT_TRUE(copies_->PutBeforeAll().ok());
  EXPECT_EQ(fake().context_waits, 1);
  EXPECT_EQ(fake().stream_waits, 0);
}

TEST_F(CudaCopiesLogicTest, TheHostWaitsWhereTheDeviceCannotBeToldOrOthersReadIt) {
  char host[64] = {};
  ASSERT_TRUE(copies_->ToDevice(0x3000, host, 32).ok());
  captures_.CaptureBegins();
  EXPECT_TRUE(copies_->PutBeforeAll().ok()) << "a capture would be broken";
  captures_.CaptureEnds();
  EXPECT_EQ(fake().context_waits, 0);
  EXPECT_EQ(fake().stream_waits, 1);
  fake().devices = 2;
  ASSERT_TRUE(driver_->EnablePeer(1).ok());
  EXPECT_TRUE(copies_->PutBeforeAll().ok());
  EXPECT_EQ(fake().context_waits, 0);
  EXPECT_EQ(fake().stream_waits, 2);
}

TEST_F(CudaCopiesLogicTest, AnOlderDriverMakesTheHostWait) {
  cuda::Api old = api_;
  old.CtxWaitEvent = nullptr;
  DriverStatus status;
  const auto driver = CudaDriver::Create(old, 0, &status);
  CudaCopies copies(*driver, *events_);
  char host[64] = {};
  ASSERT_TRUE(copies.ToDevice(0x3000, host, 32).ok());
  EXPECT_TRUE(copies.PutBeforeAll().ok());
  EXPECT_EQ(fake().stream_waits, 1);
}

TEST(CudaDescriptionTest, IsTheDevicesOfThatOrdinal) {
  cuda::Api api = FakeCuda::Table();
  api.DriverGetVersion = [](int* version) { return *version = 13020, cuda::kSuccess; };
  api.DeviceGet = [](cuda::Device* device, int ordinal) { return *device = ordinal + 40, cuda::kSuccess; };
  api.DeviceGetName = [](char* name, int length, cuda::Device device) {
    std::snprintf(name, static_cast<std::size_t>(length), "GPU %d", device);
    return cuda::kSuccess;
  };
  api.DeviceTotalMem = [](std::size_t* bytes, cuda::Device device) {
    return *bytes = static_cast<std::size_t>(device) << 30, cuda::kSuccess;
  };
  const CudaDescription description = DescribeCuda(api, 2);
  EXPECT_EQ(description.name, "GPU 42");
  EXPECT_EQ(description.bytes, Bytes{42} << 30);
  EXPECT_EQ(description.driver_version, "13.2");
}

TEST(CudaDescriptionTest, OfADeviceThatIsNotThereOnlyTheDriverIsKnown) {
  cuda::Api api = FakeCuda::Table();
  api.DriverGetVersion = [](int* version) { return *version = 12080, cuda::kSuccess; };
  api.DeviceGet = [](cuda::Device*, int) { return cuda::Result{101}; };
  const CudaDescription description = DescribeCuda(api, 7);
  EXPECT_EQ(description.name, "");
  EXPECT_EQ(description.bytes, 0u);
  EXPECT_EQ(description.driver_version, "12.8");
}

}  // namespace
}  // namespace stalloc
