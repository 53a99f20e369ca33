#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/utf8.hpp"
#include "server/jobs/table/job_table.hpp"
#include "server/jobs/task_array.hpp"
#include "tests/unit/server/jobs/fake_worker.hpp"
#include "tests/unit/server/jobs/job_table_text.hpp"

/// A generate job with several tasks, in the table and in the manager.
namespace distilld {
namespace {

using namespace std::chrono_literals;
using api::JobState;
using test::await;
using test::outcome;
using test::texts_of;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Kind = WorkerOutcome::Kind;

constexpr JobTable::Time kMoment{};

PathClaims task_claims(const std::string& array) {
    PathClaims claims{{{"/store", api::PathUse::shares, "/teacher/store"}}, "alice"};
    claims.paths[0].is_output = true;
    claims.array = array;
    return claims;
}

/// Tasks a, b and c of the array a, with room for two.
class ArrayTable : public ::testing::Test {
  protected:
    ArrayTable() {
        table_.start();
        for (const char* id : {"a", "b", "c"}) {
            table_.enqueue(id, task_claims("a"));
        }
        EXPECT_THAT(actions(), ElementsAre("start a", "start b"));
    }
    std::vector<std::string> actions() { return texts_of(table_.poll(kMoment)); }

    JobTable table_{{2, 2min}};
};

TEST_F(ArrayTable, TasksWriteOneStoreAndNobodyElseDoes) {
    EXPECT_FALSE(table_.conflict(task_claims("a"), "b"));
    EXPECT_EQ(table_.judge({false, {}, task_claims("x")}), JobVerdict::output_in_use);
    EXPECT_EQ(table_.judge({false, {}, task_claims("")}), JobVerdict::output_in_use);
    EXPECT_THAT(table_.tasks_of("a"), ElementsAre("b", "c"));
    EXPECT_THAT(table_.tasks_of("b"), IsEmpty()) << "a request about it is about nobody else";
}

TEST_F(ArrayTable, TheFailureOfTheFirstEndsTheOthers) {
    table_.on_ended("a", outcome(Kind::failed, "teacher"), kMoment);
    EXPECT_THAT(actions(),
                ElementsAre("store a failed teacher", "cancel-request b", "stop b", "store c cancelled array_ended"));
    table_.on_ended("b", outcome(Kind::cancelled, "", true), kMoment);
    EXPECT_THAT(actions(), ElementsAre("store b cancelled array_ended"));
    EXPECT_EQ(table_.judge({false, {}, task_claims("x")}), JobVerdict::created);
}

TEST_F(ArrayTable, TheFailureOfAnotherIsItsOwn) {
    table_.on_ended("b", outcome(Kind::failed, "teacher"), kMoment);
    EXPECT_THAT(actions(), ElementsAre("store b failed teacher", "start c"));
    table_.on_ended("c", outcome(Kind::finished), kMoment);
    EXPECT_THAT(actions(), ElementsAre("store c succeeded"));
    EXPECT_TRUE(table_.is_running("a"));
}

TEST_F(ArrayTable, ACompleteStoreLeavesNothingForThoseThatWait) {
    table_.pause("b", kMoment);
    table_.on_ended("b", outcome(Kind::cancelled), kMoment);
    EXPECT_THAT(actions(), ElementsAre("store b pausing paused_by_user resume", "stop b",
                                       "store b paused paused_by_user resume", "start c"));
    table_.enqueue("d", task_claims("a"));
    table_.on_ended("a", outcome(Kind::finished), kMoment);
    EXPECT_THAT(actions(),
                ElementsAre("store a succeeded", "store b succeeded array_ended", "store d succeeded array_ended"))
        << "c has a worker, which ends by itself";
    EXPECT_TRUE(table_.is_running("c"));
    EXPECT_THAT(table_.queue(), IsEmpty());
}

TEST_F(ArrayTable, CancellingTheQueuedFirstCancelsTheOthers) {
    JobTable table({1, 2min});
    table.start();
    table.enqueue("other", test::writes("/other"));
    table.enqueue("a", task_claims("a"));
    table.enqueue("b", task_claims("a"));
    static_cast<void>(table.poll(kMoment));
    EXPECT_TRUE(table.cancel("a", kMoment));
    EXPECT_THAT(texts_of(table.poll(kMoment)),
                ElementsAre("store a cancelled cancelled_by_user", "store b cancelled cancelled_by_user"));
}

TEST(RestoredArray, WhatTheFirstHasLeftBehindEndsWithIt) {
    JobTable table({1, 2min});
    for (const auto& [id, state] : {std::pair{"b", JobState::failed}, {"c", JobState::succeeded}}) {
        RestoredJob job{id, task_claims("a")};
        job.first_ended = state;
        table.restore(job);
    }
    RestoredJob adopted{"d", task_claims("a")};
    adopted.running = true;
    adopted.adopted = true;
    adopted.first_ended = JobState::cancelled;
    table.restore(adopted);
    table.start();
    EXPECT_THAT(texts_of(table.poll(kMoment)),
                ElementsAre("store b cancelled array_ended", "store c succeeded array_ended", "adopt d",
                            "cancel-request d", "stop d"));
}

TEST(ArrayQueue, AllItsTasksMustFit) {
    JobTableOptions options{1, 2min};
    options.max_queued = 3;
    JobTable table(options);
    table.start();
    EXPECT_EQ(table.judge({false, {}, task_claims("a"), 3}), JobVerdict::created);
    EXPECT_EQ(table.judge({false, {}, task_claims("a"), 4}), JobVerdict::queue_full);
}

std::string generate_text(const std::string& tasks) {
    return R"({"name":"answers","kind":"generate","tasks":)" + tasks +
           R"(,"student":{"config":{"vocab_size":9}},"teacher":{"endpoints":["http://127.0.0.1:9"],"top_k":4,)"
           R"("store":"store"},"dataset":{"train":"t.jsonl","sequence_length":16}})";
}

class Arrays : public ::testing::Test {
  protected:
    static JobManagerOptions slots(std::uint32_t count) {
        JobManagerOptions options;
        options.slots = count;
        return options;
    }
    api::Job submit(const std::string& tasks) {
        const auto outcome = await(world_.manager->submit({generate_text(tasks), "", false}));
        EXPECT_EQ(outcome.kind, JobVerdict::created) << api::describe(outcome.violations);
        return outcome.job;
    }
    api::Job get(const std::string& id) { return await(world_.manager->get(id)).value(); }
    JobVerdict ask(const std::string& id, const char* verb) {
        return await(world_.manager->command(id, job_verb(verb))).kind;
    }
    std::vector<std::string> states(const std::vector<std::string>& ids) {
        std::vector<std::string> result;
        for (const auto& id : ids) {
            result.emplace_back(api::to_string(get(id).state));
        }
        return result;
    }

    test::World world_{slots(2)};
};

TEST_F(Arrays, EachTaskIsAJobThatKnowsTheOthers) {
    const auto first = submit("3");
    ASSERT_THAT(first.tasks, SizeIs(3));
    EXPECT_EQ(first.tasks[0], first.id);
    EXPECT_EQ(get(first.id).tasks, first.tasks);
    EXPECT_EQ(get(first.id).task, 0U);
    EXPECT_EQ(get(first.id).task_of, "");
    const auto last = get(first.tasks[2]);
    EXPECT_EQ(last.task, 2U);
    EXPECT_EQ(last.task_of, first.id);
    EXPECT_EQ(last.name, "answers task 2");
    EXPECT_THAT(last.tasks, IsEmpty());
    const auto worker = world_.fleet.next();
    EXPECT_EQ(worker->start.task, 0U);
    EXPECT_EQ(world_.fleet.next()->start.task, 1U);
    EXPECT_EQ(get(last.id).state, JobState::queued);
    worker->emit(FailedEvent{"teacher", "gone"}, worker);
    worker->end(worker);
    for (const auto& id : {first.tasks[1], first.tasks[2]}) {
        EXPECT_EQ(test::wait_for_state(*world_.manager, id, JobState::cancelled).status_reason->code, "array_ended");
    }
}

TEST_F(Arrays, OneTaskIsAnOrdinaryJob) {
    const auto job = submit("1");
    EXPECT_FALSE(job.task);
    EXPECT_THAT(get(job.id).tasks, IsEmpty());
}

TEST_F(Arrays, AutoIsOnePerFreeSlot) {
    EXPECT_THAT(submit("\"auto\"").tasks, SizeIs(2));
    world_.fleet.next();
    world_.fleet.next();
    const auto full = await(world_.manager->submit({generate_text("\"auto\""), "", true}));
    EXPECT_EQ(full.kind, JobVerdict::output_in_use) << "the first array";
}

/// Of three machines, two are idle, or nobody knows.
class ClusterLauncher final : public Launcher {
  public:
    explicit ClusterLauncher(bool answers) : answers_(answers) {}
    std::unique_ptr<WorkerProcess> make(boost::asio::any_io_executor, const Attempt&) override {
        throw std::runtime_error("no worker here");
    }
    boost::asio::awaitable<Result<std::vector<Node>>> nodes(std::vector<std::string>) override {
        if (!answers_) {
            co_return io_error("sinfo does not answer");
        }
        co_return std::vector<Node>{{"a"}, {"b", "allocated"}, {"c"}};
    }

  private:
    bool answers_;
};

TEST_F(Arrays, AutoIsOnePerIdleNode) {
    for (const bool answers : {true, false}) {
        world_.manager.reset();
        auto launcher = std::make_unique<ClusterLauncher>(answers);
        world_.manager =
            std::make_unique<JobManager>(world_.options_, world_.open_store(), std::move(launcher), world_.metrics);
        await(world_.manager->start());
        const auto outcome = await(world_.manager->submit({generate_text("\"auto\""), "", true}));
        EXPECT_EQ(outcome.kind, answers ? JobVerdict::valid : JobVerdict::nodes_unavailable);
        if (answers) {
            EXPECT_EQ(outcome.spec->tasks, 2U);
        }
    }
}

TEST_F(Arrays, RequestsAboutTheFirstAreAboutAll) {
    const auto ids = submit("3").tasks;
    world_.fleet.next();
    world_.fleet.next();
    EXPECT_EQ(ask(ids[0], "pause"), JobVerdict::accepted);
    for (const auto& id : ids) {
        test::wait_for_state(*world_.manager, id, JobState::paused);
    }
    EXPECT_EQ(ask(ids[1], "resume"), JobVerdict::accepted) << "of another only about that one";
    world_.fleet.next();
    EXPECT_THAT(states(ids), ElementsAre("paused", "running", "paused"));
    EXPECT_EQ(ask(ids[0], "cancel"), JobVerdict::accepted);
    for (const auto& id : ids) {
        test::wait_for_state(*world_.manager, id, JobState::cancelled);
    }
    EXPECT_EQ(ask(ids[1], "resume"), JobVerdict::not_runnable) << "the first has ended";
    EXPECT_EQ(ask(ids[0], "resume"), JobVerdict::accepted);
    EXPECT_TRUE(world_.fleet.next()->start.resume);
    EXPECT_EQ(world_.fleet.next()->start.task, 1U);
    EXPECT_THAT(states(ids), ElementsAre("running", "running", "queued"));
    EXPECT_EQ(await(world_.manager->remove(ids[0])).kind, JobVerdict::not_terminal);
    EXPECT_EQ(ask(ids[0], "cancel"), JobVerdict::accepted);
    for (const auto& id : ids) {
        test::wait_for_state(*world_.manager, id, JobState::cancelled);
    }
    EXPECT_EQ(await(world_.manager->remove(ids[0])).job.tasks, ids);
    for (const auto& id : ids) {
        EXPECT_FALSE(await(world_.manager->get(id)));
    }
}

TEST_F(Arrays, AllOrNoneAreStored) {
    const auto store = world_.open_store();
    NewJob job;
    job.stored.job.id = "job-1";
    const std::vector twice{job, job};
    EXPECT_THROW(static_cast<void>(store->create_all(twice)), ErrorException) << "an id is taken once";
    EXPECT_FALSE(store->get("job-1"));
    store->create(job.stored);
    EXPECT_TRUE(store->get("job-1"));
}

TEST_F(Arrays, SurviveTheService) {
    const auto ids = submit("3").tasks;
    world_.fleet.next();
    const auto second = world_.fleet.next();
    await(world_.manager->stop());
    world_.manager.reset();
    world_.open();
    EXPECT_EQ(get(ids[0]).tasks, ids);
    EXPECT_EQ(world_.fleet.next()->start.job_id, ids[0]);
    EXPECT_EQ(world_.fleet.next()->start.job_id, ids[1]);
    EXPECT_EQ(ask(ids[0], "cancel"), JobVerdict::accepted);
    for (const auto& id : ids) {
        test::wait_for_state(*world_.manager, id, JobState::cancelled);
    }
}

TEST(ArrayNames, AreNotTooLong) {
    JobSpec spec;
    spec.name = std::string(128, 'n');
    spec.tasks = 2;
    StoredJob first;
    first.spec = std::make_shared<const JobSpec>(spec);
    const auto jobs = with_its_tasks(first, make_job_id);
    EXPECT_EQ(jobs[1].stored.job.name, std::string(121, 'n') + " task 1");
}

TEST(NamesOfTasks, AreCutBetweenTwoCharacters) {
    JobSpec spec;
    spec.tasks = 2;
    for (int i = 0; i < 63; ++i) {
        spec.name += "é";  // two bytes each
    }
    StoredJob first;
    first.job.id = "job-a";
    for (const std::string start : {"", "x"}) {
        JobSpec named = spec;
        named.name = start + spec.name;
        first.spec = std::make_shared<const JobSpec>(named);
        const auto name = with_its_tasks(first, [] { return std::string("job-b"); }).at(1).stored.job.name;
        EXPECT_EQ(to_valid_utf8(name), name);
        EXPECT_TRUE(name.ends_with("é task 1")) << name;
    }
}

}  // namespace
}  // namespace distilld
