#include "allocator/torch/graph_guard.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "allocator/base/import_table.h"
#include "allocator/base/log.h"
#include "allocator/graphs/graph_error.h"
#include "allocator/torch/graph_figures.h"
#include "allocator/torch/uncounted_bytes.h"
#include "tests/graphs/fake_listener.h"
#include "tests/torch/fake_graphs.h"
#include "tests/torch/libtorch_cuda.h"

namespace stalloc {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Verdict = LaunchListener::Verdict;

class GraphGuardTest : public ::testing::Test {
 protected:
  GraphGuardTest() { pools_.SetListener(0, &listener_); }

  [[nodiscard]] FakeTorchGraph Graph(std::uint32_t pool = 1) { return {.guard = guard_, .pool = pool}; }
  [[nodiscard]] PoolCatalog& Catalog(std::uint32_t pool = 1) { return pools_.Find(pool)->catalog(); }

  FakeGraphs cuda_;
  FakeListener listener_;
  GraphPools pools_;
  GraphGuard guard_{pools_, FakeGraphs::Functions(), [this](cudaStream_t stream) { return cuda_.IsCapturing(stream); }};
};

TEST_F(GraphGuardTest, ALaunchIsOfTheCaptureThatItsGraphWasMadeBy) {
  FakeTorchGraph first = Graph().Capture();
  FakeTorchGraph second = Graph().Capture();
  EXPECT_THAT(listener_.Heard(), ElementsAre("1 opens", "1 closes", "1 opens", "1 closes"));
  EXPECT_EQ(second.Replay(7), cudaSuccess);
  EXPECT_EQ(first.Replay(8), cudaSuccess);
  EXPECT_THAT(listener_.Heard(), ElementsAre("before 1/2 on 7", "after 1/2", "before 1/1 on 8", "after 1/1"));
  EXPECT_THAT(cuda_.Launched(), ElementsAre(second.executable, first.executable));
  first.Reset();
  EXPECT_THAT(listener_.Heard(), ElementsAre("1/1 is gone"));
}

TEST_F(GraphGuardTest, RequestsAreOfTheOpenCapture) {
  FakeTorchGraph graph = Graph();
  graph.CaptureBegin();
  Catalog().Allocated(512, 512);
  Catalog().Freed(512);
  graph.CaptureEnd();
  Catalog().Allocated(4096, 512);
  Catalog().Freed(4096);
  EXPECT_THAT(Catalog().UseOf(1).dead, ElementsAre(ByteRange{512, 1024}));
  EXPECT_THAT(GraphFigures(pools_, true),
              HasSubstr(R"("captures": 1, "requests": 2, "launches": 0, "refused": 0, "lendable_bytes": 512)"));
}

// An opening without a capture, as of a MemPool or a warm-up in the graph's pool, on the same thread.
TEST_F(GraphGuardTest, ACaptureIsOfThePoolThatWasOpenedLast) {
  guard_.Opens(1, 0);
  FakeTorchGraph second = Graph(2).Capture();
  guard_.Closes(1);
  EXPECT_EQ(second.Replay(), cudaSuccess);
  EXPECT_THAT(listener_.Heard(),
              ElementsAre("1 opens", "2 opens", "2 closes", "1 closes", "before 2/1 on 16", "after 2/1"));
  guard_.Opens(1, 0);
  guard_.Closes(1);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(guard_.BeginCapture(StreamOf(5), cudaStreamCaptureModeGlobal), cudaSuccess);
  EXPECT_EQ(guard_.EndCapture(StreamOf(5), &graph), cudaSuccess);
  EXPECT_EQ(pools_.Find(1)->figures().captures, 0u) << "no pool is open on this thread";
}

TEST_F(GraphGuardTest, ThreadsCaptureInPoolsOfTheirOwn) {
  std::vector<std::thread> threads;
  for (std::uint32_t pool = 1; pool <= 3; ++pool) {
    threads.emplace_back([this, pool] {
      for (int i = 0; i < 200; ++i) {
        FakeTorchGraph graph{.guard = guard_, .pool = pool, .stream = StreamOf(16 * pool)};
        graph.CaptureBegin();
        Catalog(pool).Allocated(pool << 20, 512);
        Catalog(pool).Freed(pool << 20);
        graph.CaptureEnd();
        EXPECT_EQ(graph.Replay(pool), cudaSuccess);
        graph.Reset();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::uint32_t pool = 1; pool <= 3; ++pool) {
    EXPECT_TRUE(Catalog(pool).followable());
    EXPECT_EQ(pools_.Find(pool)->figures().captures, 200u);
    EXPECT_EQ(pools_.Find(pool)->figures().launches, 200u);
    EXPECT_THAT(Catalog(pool).UseOf(200).dead, ElementsAre(ByteRange{pool << 20, (pool << 20) + 512}));
  }
}

// Each thread captures, then launches what all captured, while the others do the same: pools are shared.
TEST_F(GraphGuardTest, ThreadsLaunchGraphsOfOnePool) {
  std::vector<FakeTorchGraph> graphs;
  for (std::uintptr_t i = 0; i < 3; ++i) graphs.push_back(Graph(1 + i % 2).Capture());
  (void)listener_.Heard();
  std::vector<std::thread> threads;
  for (std::uintptr_t thread = 1; thread <= 3; ++thread) {
    threads.emplace_back([&graphs, thread] {
      for (int i = 0; i < 300; ++i) EXPECT_EQ(graphs[static_cast<std::size_t>(i) % 3].Replay(thread), cudaSuccess);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pools_.Find(1)->figures().launches, 600u);
  EXPECT_EQ(pools_.Find(2)->figures().launches, 300u);
  EXPECT_EQ(cuda_.Launched().size(), 900u);
  std::vector<std::string> open(3);
  for (const std::string& heard : listener_.Heard()) {
    const auto pool = static_cast<std::size_t>(heard[heard.find('/') - 1] - '0');
    const std::string graph = heard.substr(heard.find('/') + 1, 1);
    if (heard.starts_with("before")) {
      EXPECT_EQ(std::exchange(open[pool], graph), "") << "two at once in pool " << pool;
    } else {
      EXPECT_EQ(std::exchange(open[pool], ""), graph);
    }
  }
}

TEST_F(GraphGuardTest, WhatIsNotKnownIsLaunchedAsItIs) {
  EXPECT_EQ(guard_.Launch(reinterpret_cast<cudaGraphExec_t>(0x9000), StreamOf(5)), cudaSuccess);
  (void)Graph().Capture();
  (void)listener_.Heard();
  EXPECT_EQ(guard_.Launch(reinterpret_cast<cudaGraphExec_t>(0x9000), StreamOf(5)), cudaSuccess);
  EXPECT_THAT(listener_.Heard(), IsEmpty());
  EXPECT_EQ(cuda_.Launched().size(), 2u);
  EXPECT_EQ(guard_.DestroyExecutable(reinterpret_cast<cudaGraphExec_t>(0x9000)), cudaSuccess);
}

TEST_F(GraphGuardTest, AHandleThatCudaGivesOutAgainIsOfItsNewGraph) {
  FakeTorchGraph first = Graph().Capture();
  first.Reset();
  FakeTorchGraph second = Graph().Capture();
  ASSERT_EQ(second.executable, first.executable);
  (void)listener_.Heard();
  EXPECT_EQ(second.Replay(), cudaSuccess);
  EXPECT_THAT(listener_.Heard(), ElementsAre("before 1/2 on 16", "after 1/2"));
  second.Reset();

  cudaGraphExec_t unknown = nullptr;
  EXPECT_EQ(guard_.InstantiateWith(guard_.functions().instantiate, &unknown, reinterpret_cast<cudaGraph_t>(0x77), 0),
            cudaSuccess);
  ASSERT_EQ(unknown, first.executable);
  (void)listener_.Heard();
  EXPECT_EQ(guard_.Launch(unknown, StreamOf(16)), cudaSuccess);
  EXPECT_THAT(listener_.Heard(), IsEmpty()) << "of a graph that is not known";
}

TEST_F(GraphGuardTest, AGraphThatIsKeptIsInstantiatedAgain) {
  FakeTorchGraph graph = Graph();
  graph.CaptureBegin();
  graph.CaptureEnd(true);
  graph.Reset();
  EXPECT_THAT(listener_.Heard(), ElementsAre("1 opens", "1 closes")) << "it may be made executable again";
  EXPECT_EQ(guard_.InstantiateWith(guard_.functions().instantiate, &graph.executable, graph.graph, 0), cudaSuccess);
  EXPECT_EQ(graph.Replay(), cudaSuccess);
  EXPECT_THAT(listener_.Heard(), ElementsAre("before 1/1 on 16", "after 1/1"));
  EXPECT_EQ(guard_.DestroyGraph(graph.graph), cudaSuccess);
  graph.Reset();
  EXPECT_THAT(listener_.Heard(), ElementsAre("1/1 is gone"));
}

TEST_F(GraphGuardTest, ACaptureThatFailsHasNoGraph) {
  FakeTorchGraph graph = Graph();
  graph.CaptureBegin();
  Catalog().Allocated(512, 512);
  cuda_.error = cudaErrorStreamCaptureInvalidated;
  EXPECT_EQ(guard_.EndCapture(graph.stream, &graph.graph), cudaErrorStreamCaptureInvalidated);
  guard_.Closes(1);
  cuda_.error = cudaSuccess;
  FakeTorchGraph next = Graph();
  next.CaptureBegin();
  Catalog().Freed(512);
  next.CaptureEnd();
  EXPECT_TRUE(Catalog().followable());
  EXPECT_THAT(Catalog().UseOf(2).takes, IsEmpty());
  EXPECT_THAT(listener_.Heard(), ElementsAre("1 opens", "1 closes", "1 opens", "1 closes"));
}

TEST_F(GraphGuardTest, ACaptureThatDoesNotBeginIsNone) {
  guard_.Opens(1, 0);
  cuda_.error = cudaErrorInvalidValue;
  EXPECT_EQ(guard_.BeginCapture(StreamOf(16), cudaStreamCaptureModeGlobal), cudaErrorInvalidValue);
  cuda_.error = cudaSuccess;
  guard_.Closes(1);
  EXPECT_EQ(pools_.Find(1)->figures().captures, 0u);
  EXPECT_THAT(listener_.Heard(), ElementsAre("1 opens", "1 closes"));
}

TEST_F(GraphGuardTest, ACaptureThatAnotherThreadTriesToEndGoesOn) {
  FakeTorchGraph graph = Graph();
  graph.CaptureBegin();
  cuda_.error = cudaErrorStreamCaptureWrongThread;
  EXPECT_EQ(guard_.EndCapture(graph.stream, &graph.graph), cudaErrorStreamCaptureWrongThread);
  cuda_.error = cudaSuccess;
  EXPECT_TRUE(Catalog().capturing());
  graph.CaptureEnd();
  EXPECT_FALSE(Catalog().capturing());
  EXPECT_EQ(graph.Replay(), cudaSuccess);
  EXPECT_EQ(pools_.Find(1)->figures().launches, 1u);
}

// torch 2.13 and later: the body is captured on a stream of its own, into a graph that is there, and the pool is closed
// and opened meanwhile.
TEST_F(GraphGuardTest, AConditionalNodeIsAPartOfItsCapture) {
  FakeTorchGraph graph = Graph();
  graph.CaptureBegin();
  guard_.Closes(1);
  guard_.Opens(1, 0);
  Catalog().Allocated(512, 512);
  EXPECT_EQ(guard_.EndCapture(StreamOf(32), nullptr), cudaSuccess);
  guard_.Closes(1);
  guard_.Opens(1, 0);
  Catalog().Freed(512);
  EXPECT_TRUE(Catalog().capturing());
  graph.CaptureEnd();
  EXPECT_TRUE(Catalog().followable());
  EXPECT_THAT(Catalog().UseOf(1).dead, ElementsAre(ByteRange{512, 1024}));
  EXPECT_THAT(listener_.Heard(), ElementsAre("1 opens", "1 opens", "1 opens", "1 closes"));
}

TEST_F(GraphGuardTest, ALaunchWhoseCarriedBytesAreGoneNamesBothGraphs) {
  SetLogLevel(LogSeverity::kOff);
  FakeTorchGraph first = Graph(4).Capture();
  FakeTorchGraph second = Graph(4).Capture();
  listener_.verdict = Verdict::kCarriedGone;
  listener_.giver = 1;
  EXPECT_EQ(second.Replay(), cudaErrorIllegalState);
  EXPECT_THAT(GraphError(), AllOf(HasSubstr("graph 2 of pool 4"), HasSubstr("graph 1 of the pool leaves"),
                                  HasSubstr("STALLOC_GRAPHS=apart")));
  listener_.verdict = Verdict::kLaunch;
  second.Reset();
  first.Reset();
}

TEST_F(GraphGuardTest, ARefusedLaunchIsAnErrorInWords) {
  SetLogLevel(LogSeverity::kOff);
  FakeTorchGraph graph = Graph(4).Capture();
  const std::pair<Verdict, cudaError_t> kRefused[] = {{Verdict::kOutOfMemory, cudaErrorMemoryAllocation},
                                                      {Verdict::kCarriedGone, cudaErrorIllegalState},
                                                      {Verdict::kNotOrdered, cudaErrorNotPermitted}};
  for (const auto& [verdict, error] : kRefused) {
    listener_.verdict = verdict;
    EXPECT_EQ(graph.Replay(), error);
    EXPECT_THAT(GraphError(), HasSubstr("stalloc did not launch CUDA graph 1 of pool 4"));
  }
  EXPECT_THAT(cuda_.Launched(), IsEmpty());
  listener_.verdict = Verdict::kLaunch;
  cuda_.error = cudaErrorLaunchFailure;
  (void)listener_.Heard();
  EXPECT_EQ(graph.Replay(), cudaErrorLaunchFailure);
  EXPECT_THAT(listener_.Heard(), ElementsAre("before 4/1 on 16", "after 4/1"));
  SetLogLevel(kDefaultLogLevel);
}

// What makes launches unseen ---------------------------------------------------------------------------------------

TEST_F(GraphGuardTest, ALaunchIntoACapture) {
  FakeTorchGraph child = Graph(1).Capture();
  FakeTorchGraph parent = Graph(2);
  parent.CaptureBegin();
  (void)listener_.Heard();
  EXPECT_EQ(child.Replay(), cudaSuccess);
  EXPECT_THAT(listener_.Heard(), ElementsAre("1: a graph of it became a part of another graph"));
  EXPECT_EQ(cuda_.Launched().size(), 1u);
  EXPECT_EQ(child.Replay(0), cudaSuccess);
  parent.CaptureEnd();
  EXPECT_FALSE(Catalog(1).followable());
  EXPECT_TRUE(Catalog(2).followable());
}

TEST_F(GraphGuardTest, TheDefaultStreamIsNeverCaptured) {
  GraphGuard unsure(pools_, FakeGraphs::Functions(), [](cudaStream_t) { return true; });
  FakeTorchGraph graph{.guard = unsure};
  graph.Capture();
  EXPECT_EQ(unsure.Launch(graph.executable, nullptr), cudaSuccess);
  EXPECT_EQ(unsure.Launch(graph.executable, cudaStreamLegacy), cudaSuccess);
  EXPECT_TRUE(Catalog().followable());
  EXPECT_EQ(unsure.Launch(graph.executable, StreamOf(16)), cudaSuccess);
  EXPECT_FALSE(Catalog().followable());
}

TEST_F(GraphGuardTest, AnExecutableForLaunchesFromTheDevice) {
  FakeTorchGraph graph = Graph();
  graph.CaptureBegin();
  graph.CaptureEnd(false, cudaGraphInstantiateFlagDeviceLaunch | cudaGraphInstantiateFlagUpload);
  EXPECT_THAT(listener_.Heard(),
              ElementsAre("1 opens", "1 closes", "1: an executable of it can be launched from the device"));
}

TEST_F(GraphGuardTest, HandlesThatTheProgramGets) {
  FakeTorchGraph graph = Graph(1);
  graph.CaptureBegin();
  graph.CaptureEnd(true);
  FakeTorchGraph other = Graph(2).Capture();
  (void)listener_.Heard();
  EXPECT_THROW(guard_.RawGraph(&graph), std::runtime_error) << "as torch says that there is none";
  cuda_.raw = graph.graph;
  EXPECT_EQ(guard_.RawGraph(&graph), graph.graph);
  EXPECT_THAT(listener_.Heard(), ElementsAre("1: the program has the handle of a graph of it"));
  cuda_.raw = other.executable;
  EXPECT_EQ(guard_.RawExecutable(&other), other.executable);
  EXPECT_THAT(listener_.Heard(), ElementsAre("2: the program has the handle of an executable of it"));
  cuda_.raw = &cuda_;
  EXPECT_EQ(guard_.RawExecutable(&other), &cuda_) << "of no graph that is known";
}

TEST_F(GraphGuardTest, AnExecutableThatCannotBeDestroyed) {
  FakeTorchGraph graph = Graph().Capture();
  (void)listener_.Heard();
  cuda_.error = cudaErrorLaunchFailure;
  EXPECT_EQ(guard_.DestroyExecutable(graph.executable), cudaErrorLaunchFailure);
  EXPECT_THAT(listener_.Heard(), ElementsAre("1: an executable of it could not be destroyed"));
}

TEST_F(GraphGuardTest, CapturesOfOnePoolThatOverlap) {
  FakeTorchGraph first = Graph();
  FakeTorchGraph second = Graph();
  second.stream = StreamOf(32);
  first.CaptureBegin();
  second.CaptureBegin();
  EXPECT_THAT(listener_.Heard(), ElementsAre("1 opens", "1 opens", "1: two captures of it were open at once"));
  first.CaptureEnd();
  second.CaptureEnd();
  EXPECT_EQ(first.Replay(), cudaSuccess);
  EXPECT_THAT(listener_.Heard(), IsEmpty());
}

// In torch's import tables -----------------------------------------------------------------------------------------

class GraphGuardInstallTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = LoadLibtorchCuda(); !why.empty()) GTEST_SKIP() << why;
  }
};

TEST_F(GraphGuardInstallTest, TakesThePlaceOfCudasFunctionsInLibtorchCuda) {
  const ImportTable table = ImportTable::Of("libtorch_cuda.so").value();
  const auto function = [&](const char* symbol) { return table.Function(symbol).value(); };
  void* const launch = function("cudaGraphLaunch");
  Dl_info info;
  ASSERT_NE(dladdr(launch, &info), 0);
  EXPECT_THAT(info.dli_fname, HasSubstr("libcudart"));

  GraphPools pools;
  UncountedBytes uncounted([]() -> std::optional<UncountedBytes::Sample> { return std::nullopt; });
  GraphGuard* const guard = GraphGuard::Install(pools, uncounted, [](cudaStream_t) { return true; });
  ASSERT_NE(guard, nullptr);
  EXPECT_EQ(reinterpret_cast<void*>(guard->functions().launch), launch);
  for (const char* const symbol : {"cudaStreamBeginCapture", "cudaStreamEndCapture", "cudaGraphInstantiateWithFlags",
                                   "cudaGraphLaunch", "cudaGraphExecDestroy", "cudaGraphDestroy"}) {
    ASSERT_NE(dladdr(function(symbol), &info), 0) << symbol;
    EXPECT_THAT(info.dli_fname, ::testing::Not(HasSubstr("libcudart"))) << symbol;
  }
  ASSERT_NE(dladdr(function("cudaStreamIsCapturing"), &info), 0);
  EXPECT_THAT(info.dli_fname, HasSubstr("libcudart")) << "the others stay";
}

}  // namespace
}  // namespace stalloc
