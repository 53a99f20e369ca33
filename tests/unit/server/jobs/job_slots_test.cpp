#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "tests/unit/server/jobs/fake_worker.hpp"
#include "tests/unit/server/support/exposition.hpp"

namespace distilld {
namespace {

using api::JobState;
using test::await;
using test::progress_at;
using test::wait_for_state;
using test::World;
using ::testing::ElementsAre;

void finish_run(const test::Control& worker) {
    FinishedEvent event;
    event.last = progress_at(10, 1.0);
    event.output = "/out";
    event.weights_sha256 = "abc";
    worker->emit(event, worker);
    worker->end(worker);
}

TEST(JobSlots, GivesEachRunningJobASlotOfItsOwn) {
    JobManagerOptions options;
    options.slots = 2;
    options.slot_layout = {Slot{0, {0, 1}, ""}, Slot{1, {2, 3}, "GPU-1"}};
    World world(options);
    const auto a = world.submit("a");
    const auto b = world.submit("b");
    const auto c = world.submit("c");
    const auto worker_a = world.fleet.next();
    world.fleet.next();
    const auto slots = [&world](const char* state) {
        return test::sample(world.metrics->text(), std::string("distilld_slots{state=\"") + state + "\"}");
    };
    EXPECT_EQ(slots("busy"), 2);
    EXPECT_EQ(slots("free"), 0);
    const auto job_a = *await(world.manager->get(a));
    const auto job_b = *await(world.manager->get(b));
    EXPECT_EQ(job_a.slot, 0U);
    EXPECT_THAT(job_a.cores, ElementsAre(0, 1));
    EXPECT_EQ(job_a.device, "");
    EXPECT_EQ(job_b.slot, 1U);
    EXPECT_THAT(job_b.cores, ElementsAre(2, 3));
    EXPECT_EQ(job_b.device, "GPU-1");
    EXPECT_EQ(await(world.manager->get(c))->slot, std::nullopt);
    finish_run(worker_a);
    const auto worker_c = world.fleet.next();
    EXPECT_EQ(await(world.manager->get(c))->slot, 0U) << "the slot that was freed";
    const auto ended = wait_for_state(*world.manager, a, JobState::succeeded);
    EXPECT_EQ(ended.slot, std::nullopt);
    EXPECT_THAT(ended.cores, ElementsAre());
    finish_run(worker_c);
    wait_for_state(*world.manager, c, JobState::succeeded);
    EXPECT_EQ(slots("busy"), 1);
    EXPECT_EQ(slots("free"), 1);
}

}  // namespace
}  // namespace distilld
