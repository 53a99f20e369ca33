#include <gtest/gtest.h>

#include "server/jobs/job_manager.hpp"
#include "tests/unit/server/jobs/routes_fixture.hpp"
#include "tests/unit/server/support/exposition.hpp"

namespace distilld {
namespace {

JobManagerOptions two_slots() {
    JobManagerOptions options = test::brisk();
    options.slots = 2;
    return options;
}

class NodeRoutesTest : public test::RoutesTest {
  protected:
    NodeRoutesTest() : RoutesTest(two_slots()) {}

    std::string nodes() {
        const auto response = get("/v1/nodes");
        EXPECT_EQ(response.status, 200U);
        return response.body;
    }
    static std::string expected(const std::string& state, const std::string& jobs) {
        return R"({"object":"list","data":[{"name":"here","state":")" + state +
               R"(","cores":4,"memory_mb":1024,"gpus":0,"jobs":[)" + jobs + "]}]}";
    }
};

TEST_F(NodeRoutesTest, SaysWhatRunsOnThisMachine) {
    EXPECT_EQ(nodes(), expected("idle", ""));
    const auto first = submitted("a");
    const auto worker = world_.fleet.next();
    EXPECT_EQ(nodes(), expected("mixed", '"' + first + '"'));
    const auto second = submitted("b");
    static_cast<void>(world_.fleet.next());
    const auto waits = submitted("c");
    EXPECT_EQ(nodes(), expected("allocated", '"' + std::min(first, second) + "\",\"" + std::max(first, second) + '"'));
    finish(worker);
    static_cast<void>(world_.fleet.next());
    EXPECT_EQ(nodes(), expected("allocated", '"' + std::min(second, waits) + "\",\"" + std::max(second, waits) + '"'));
}

TEST_F(NodeRoutesTest, AreInTheMetrics) {
    static_cast<void>(nodes());  // of the manager's thread, which has looked before that
    const std::string text = world_.metrics->text();
    EXPECT_EQ(test::sample(text, "distilld_nodes{state=\"idle\"}"), 1);
    EXPECT_EQ(test::sample(text, "distilld_nodes_with_jobs{state=\"idle\"}"), 0);
    EXPECT_EQ(test::sample(text, "distilld_node_cores{state=\"idle\"}"), 4);
    EXPECT_EQ(test::sample(text, "distilld_node_attempts{node=\"here\"}"), 0);
}

TEST_F(NodeRoutesTest, ItsAttemptsAreInTheMetrics) {
    static_cast<void>(submitted("a"));
    static_cast<void>(submitted("b"));
    world_.manager.reset();
    world_.open();  // a manager looks when it has started its workers, and later at intervals
    static_cast<void>(test::await(world_.manager->nodes()));
    const std::string text = world_.metrics->text();
    EXPECT_EQ(test::sample(text, "distilld_node_attempts{node=\"here\"}"), 2);
    EXPECT_EQ(test::sample(text, "distilld_nodes_with_jobs{state=\"allocated\"}"), 1);
}

TEST_F(NodeRoutesTest, RefusesUnknownParameters) {
    EXPECT_EQ(code(get("/v1/nodes", "", {{"limit", "1"}})), "unknown_parameter");
}

}  // namespace
}  // namespace distilld
