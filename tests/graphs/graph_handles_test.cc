#include "allocator/graphs/graph_handles.h"

#include <gtest/gtest.h>

#include <optional>

namespace stalloc {
namespace {

using Capture = GraphHandles::Capture;

class GraphHandlesTest : public ::testing::Test {
 protected:
  static GraphId Of(const std::optional<Capture>& capture) { return capture.has_value() ? capture->graph : 0; }
  [[nodiscard]] Capture Graph(GraphId graph) { return {&pool_, graph}; }

  GraphPool pool_{1, 0, nullptr};
  GraphHandles handles_;
};

TEST_F(GraphHandlesTest, ACaptureIsOfItsStreamUntilItEnds) {
  handles_.CaptureBegins(5, Graph(1));
  handles_.CaptureBegins(6, Graph(2));
  EXPECT_EQ(Of(handles_.CaptureEnds(5)), 1u);
  EXPECT_EQ(Of(handles_.CaptureEnds(5)), 0u);
  EXPECT_EQ(Of(handles_.CaptureEnds(6)), 2u);
}

TEST_F(GraphHandlesTest, AnUnknownHandleIsOfNone) {
  EXPECT_FALSE(handles_.OfExecutable(7).has_value());
  handles_.SetExecutable(8, Graph(1));
  EXPECT_FALSE(handles_.OfExecutable(7).has_value());
  EXPECT_FALSE(handles_.OfGraph(8).has_value()) << "the two are apart";
  EXPECT_FALSE(handles_.SetGraph(9, std::nullopt).has_value());
}

TEST_F(GraphHandlesTest, ACaptureIsGoneWithItsLastHandle) {
  EXPECT_EQ(Of(handles_.SetGraph(7, Graph(1))), 0u);
  EXPECT_EQ(Of(handles_.SetExecutable(8, Graph(1))), 0u);
  EXPECT_EQ(Of(handles_.SetExecutable(9, Graph(1))), 0u);
  EXPECT_EQ(Of(handles_.SetGraph(7, std::nullopt)), 0u);
  EXPECT_EQ(Of(handles_.SetExecutable(8, std::nullopt)), 0u);
  EXPECT_EQ(Of(handles_.OfExecutable(9)), 1u);
  EXPECT_EQ(Of(handles_.SetExecutable(9, std::nullopt)), 1u);
  EXPECT_FALSE(handles_.OfExecutable(9).has_value());
}

TEST_F(GraphHandlesTest, AHandleThatIsGivenOutAgainIsOfTheNewOne) {
  handles_.SetExecutable(8, Graph(1));
  EXPECT_EQ(Of(handles_.SetExecutable(8, Graph(2))), 1u) << "what it was of before is gone";
  EXPECT_EQ(Of(handles_.OfExecutable(8)), 2u);
  EXPECT_EQ(Of(handles_.SetExecutable(8, Graph(2))), 0u) << "the same one again";
  EXPECT_EQ(Of(handles_.OfExecutable(8)), 2u);
  EXPECT_EQ(Of(handles_.SetExecutable(8, std::nullopt)), 2u) << "now by a graph that is not known";
  EXPECT_FALSE(handles_.OfExecutable(8).has_value());
}

}  // namespace
}  // namespace stalloc
