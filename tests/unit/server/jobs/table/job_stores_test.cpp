#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "server/jobs/awaited_stores.hpp"
#include "server/jobs/table/job_table.hpp"
#include "tests/unit/server/jobs/fake_worker.hpp"
#include "tests/unit/server/jobs/job_table_text.hpp"

/// Students that wait for the first shard of a store.
namespace distilld {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using api::JobState;
using test::await;
using test::outcome;
using test::texts_of;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Kind = WorkerOutcome::Kind;

constexpr JobTable::Time kStart{};
constexpr const char* kHeld = "store s queued waiting_for_store waits";

PathClaims maker_claims(const std::string& array = "") {
    PathClaims claims{{{"/store", api::PathUse::shares, "/teacher/store"}}, "alice"};
    claims.paths[0].is_output = true;
    claims.array = array;
    return claims;
}

PathClaims student_claims(const std::string& name, const std::string& owner = "bob") {
    PathClaims claims = test::writes("/" + name, owner);
    claims.paths.push_back({"/store", api::PathUse::reads, "/teacher/store"});
    claims.paths.back().is_awaited = true;
    return claims;
}

class Stores : public ::testing::Test {
  protected:
    Stores() { table_.start(); }
    std::vector<std::string> actions() { return texts_of(table_.poll(kStart)); }

    JobTable table_{{2, 2min}};
};

TEST_F(Stores, AStudentWaitsWithoutASlotAndOthersPass) {
    table_.enqueue("g", maker_claims());
    table_.enqueue("s", student_claims("s"));
    table_.enqueue("t", student_claims("t"));
    table_.enqueue("other", test::writes("/other"));
    table_.enqueue("last", test::writes("/last"));
    EXPECT_THAT(actions(), ElementsAre(kHeld, "store t queued waiting_for_store waits", "start g", "start other"));
    EXPECT_EQ(table_.intent("s"), JobIntent());
    EXPECT_FALSE(table_.queue_position("s"));
    EXPECT_THAT(table_.queue(), ElementsAre("last"));
    EXPECT_TRUE(table_.on_sealed("g"));
    EXPECT_FALSE(table_.on_sealed("g")) << "that is known";
    EXPECT_THAT(actions(), ElementsAre("store s queued", "store t queued"));
    EXPECT_THAT(table_.queue(), ElementsAre("s", "t", "last")) << "in their places";
    table_.on_ended("other", outcome(Kind::finished), kStart);
    EXPECT_THAT(actions(), ElementsAre("store other succeeded", "start s")) << "beside the job that fills the store";
    table_.enqueue("u", student_claims("u"));
    EXPECT_THAT(actions(), IsEmpty()) << "a shard is sealed";
    EXPECT_THAT(table_.queue(), ElementsAre("t", "last", "u"));
}

TEST_F(Stores, TheEndOfItsMakerEndsTheWait) {
    table_.enqueue("g", maker_claims());
    table_.enqueue("s", student_claims("s"));
    EXPECT_THAT(actions(), ElementsAre(kHeld, "start g"));
    table_.on_ended("g", outcome(Kind::died), kStart);
    EXPECT_THAT(actions(), ElementsAre("store g queued worker_restarting resume waits")) << "it will go on";
    table_.pause("g", kStart);
    EXPECT_THAT(actions(), ElementsAre("store g paused paused_by_user resume")) << "and may go on";
    table_.cancel("g", kStart);
    EXPECT_THAT(actions(), ElementsAre("store g cancelled cancelled_by_user", "store s queued", "start s"));
}

TEST_F(Stores, AStudentWaitsForAllTasksOfAnArray) {
    table_.enqueue("g", maker_claims("g"));
    table_.enqueue("h", maker_claims("g"));
    table_.enqueue("s", student_claims("s"));
    EXPECT_THAT(actions(), ElementsAre(kHeld, "start g", "start h"));
    table_.on_ended("h", outcome(Kind::failed, "teacher"), kStart);
    EXPECT_THAT(actions(), ElementsAre("store h failed teacher"));
    table_.enqueue("i", maker_claims("g"));
    table_.on_sealed("i");
    EXPECT_THAT(actions(), ElementsAre("store s queued", "start s")) << "whoever sealed it";
}

TEST_F(Stores, AMakerThatComesLaterIsWaitedForToo) {
    table_.enqueue("a", test::writes("/a"));
    table_.enqueue("b", test::writes("/b"));
    table_.enqueue("s", student_claims("s"));
    table_.enqueue("g", maker_claims());
    EXPECT_THAT(actions(), ElementsAre("start a", "start b"));
    table_.on_ended("a", outcome(Kind::finished), kStart);
    EXPECT_THAT(actions(), ElementsAre("store a succeeded", kHeld, "start g"));
}

TEST_F(Stores, AStudentThatWaitsObeysItsUser) {
    table_.enqueue("g", maker_claims());
    for (const char* id : {"s", "t", "u"}) {
        table_.enqueue(id, student_claims(id));
    }
    static_cast<void>(actions());
    EXPECT_EQ(table_.pause("t", kStart), JobVerdict::accepted);
    EXPECT_TRUE(table_.cancel("u", kStart));
    EXPECT_TRUE(table_.set_priority("s", 5));
    EXPECT_THAT(actions(), ElementsAre("store t paused paused_by_user", "store u cancelled cancelled_by_user"));
    EXPECT_THAT(table_.queue(), IsEmpty());
    EXPECT_EQ(table_.resume("t"), JobVerdict::accepted);
    EXPECT_THAT(actions(),
                ElementsAre("note t resume requested", "store t queued", "store t queued waiting_for_store waits"));
    table_.on_sealed("g");
    EXPECT_THAT(actions(), ElementsAre("store s queued", "store t queued", "start s"));
}

TEST(HeldJobs, CountAsQueued) {
    JobTableOptions options{1, 2min};
    options.max_queued = 2;
    JobTable table(options);
    table.start();
    table.enqueue("g", maker_claims());
    static_cast<void>(table.poll(kStart));
    table.enqueue("s", student_claims("s"));
    table.enqueue("t", student_claims("t"));
    EXPECT_EQ(table.judge({false, {}, student_claims("u")}), JobVerdict::queue_full);
}

TEST(RestoredStores, AreWaitedForAgain) {
    JobTable table({2, 2min});
    RestoredJob held{"s", student_claims("s")};
    held.held = true;
    RestoredJob released{"t", student_claims("t")};
    released.claims.paths.back().is_awaited = false;  // a shard has been sealed since
    released.held = true;
    RestoredJob queued{"u", student_claims("u")};
    RestoredJob maker{"g", maker_claims()};
    for (const auto& job : {held, released, queued, maker}) {
        table.restore(job);
    }
    table.start();
    EXPECT_THAT(texts_of(table.poll(kStart)),
                ElementsAre("store u queued waiting_for_store waits", kHeld, "store t queued", "start t", "start g"));
}

class StudentsOfAManager : public ::testing::Test {
  protected:
    static JobManagerOptions two_slots() {
        JobManagerOptions options;
        options.slots = 2;
        return options;
    }
    std::string submit_student() {
        auto text = test::spec_text("student");
        text.insert(1, R"("teacher":{"store":"store","top_k":4},)");
        auto id = world_.submit_text(text);
        await(world_.manager->answer());  // what follows from it is in the queue of the manager's thread now
        return id;
    }
    std::string submit_maker() {
        return world_.submit_text(
            R"({"kind":"generate","student":{"config":{"vocab_size":9}},"teacher":{"endpoints":["http://127.0.0.1:9"],)"
            R"("top_k":4,"store":"store"},"dataset":{"train":"t.jsonl","sequence_length":16}})");
    }
    static ProgressEvent sealed(std::uint64_t rows) {
        auto progress = test::progress_at(5, 0);
        progress.generates = true;
        progress.fetch.store = StoreCounters{10, 5, rows, rows};
        return progress;
    }
    std::string reason(const std::string& id) {
        const auto job = await(world_.manager->get(id)).value();
        return job.status_reason ? job.status_reason->code : "";
    }

    test::World world_{two_slots()};
};

TEST_F(StudentsOfAManager, StartWithTheFirstSealedShard) {
    const auto maker = submit_maker();
    const auto student = submit_student();
    const auto generator = world_.fleet.next();
    EXPECT_EQ(generator->start.job_id, maker);
    generator->emit(sealed(0), generator);
    await(world_.manager->answer());
    EXPECT_EQ(reason(student), "waiting_for_store");
    EXPECT_EQ(world_.fleet.count(), 1U);
    generator->emit(sealed(4), generator);
    EXPECT_EQ(world_.fleet.next()->start.job_id, student);
    const auto history = world_.history(student);
    EXPECT_THAT(history, ElementsAre("state: job queued",
                                     "state: job queued: job " + maker + " has not sealed a shard of " +
                                         (world_.folder.path() / "store").string() + " yet",
                                     "state: job queued", "state: job running"));
}

TEST_F(StudentsOfAManager, DoNotWaitForAStoreThatHasShards) {
    fs::create_directory(world_.folder.path() / "store");
    std::ofstream(world_.folder.path() / "store/shards.jsonl") << "{}\n";
    submit_maker();
    const auto student = submit_student();
    world_.fleet.next();
    EXPECT_EQ(world_.fleet.next()->start.job_id, student);
}

TEST_F(StudentsOfAManager, WaitAgainAfterTheServiceHasEnded) {
    const auto maker = submit_maker();
    const auto student = submit_student();
    world_.fleet.next();
    await(world_.manager->stop());
    world_.manager.reset();
    world_.open();
    EXPECT_EQ(world_.fleet.next()->start.job_id, maker);
    EXPECT_EQ(reason(student), "waiting_for_store");
    await(world_.manager->stop());
    world_.manager.reset();
    fs::create_directory(world_.folder.path() / "store");
    std::ofstream(world_.folder.path() / "store/shards.jsonl") << "{}\n";
    world_.open();
    const auto first = world_.fleet.next()->start.job_id;
    EXPECT_THAT((std::vector{first, world_.fleet.next()->start.job_id}),
                ::testing::UnorderedElementsAre(maker, student));
    EXPECT_EQ(reason(student), "");
}

TEST(AwaitedStores, AreThoseThatAStudentHasAlone) {
    test::TemporaryFolder folder;
    JobSpec spec;
    spec.output = folder.path() / "out";
    spec.teachers[""].store = (folder.path() / "store").string();
    const auto awaited = [&spec] { return std::ranges::count_if(claims_now(spec), &PathClaim::is_awaited); };
    EXPECT_EQ(awaited(), 1);
    fs::create_directory(folder.path() / "store");
    std::ofstream(folder.path() / "store/shards.jsonl").flush();
    EXPECT_EQ(awaited(), 1) << "an empty list";
    spec.teacher()->endpoints = {"http://teacher:1"};
    EXPECT_EQ(awaited(), 0) << "it can ask";
    spec.teacher()->endpoints.clear();
    std::ofstream(folder.path() / "store/shards.jsonl") << "{}\n";
    EXPECT_EQ(awaited(), 0);
}

}  // namespace
}  // namespace distilld
