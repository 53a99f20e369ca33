#include "server/jobs/store/job_logs.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/cores.hpp"
#include "server/jobs/logged_worker.hpp"
#include "tests/unit/server/jobs/routes_fixture.hpp"

namespace distilld {
namespace {

using test::await;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

constexpr const char* kTime = "[-0-9]+T[:.0-9]+Z ";

std::size_t lines_of(const std::string& text) {
    return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

TEST(JobLogs, GiveTheLastLines) {
    const test::TemporaryFolder folder;
    JobLogs logs(folder / "logs");
    EXPECT_EQ(await(logs.tail("a", 10)), "");
    EXPECT_FALSE(std::filesystem::exists(folder / "logs"));
    for (int line = 1; line <= 5; ++line) {
        logs.append("a", "info", "line " + std::to_string(line));
    }
    logs.append("b", "warn", "two\nlines\r");
    const auto last = await(logs.tail("a", 2));
    EXPECT_THAT(last, MatchesRegex(std::string(kTime) + "info line 4\n" + kTime + "info line 5\n"));
    EXPECT_EQ(lines_of(await(logs.tail("a", 5))), 5U);
    EXPECT_EQ(lines_of(await(logs.tail("a", JobLogs::kMaxTail))), 5U);
    EXPECT_THAT(await(logs.tail("b", 9)), MatchesRegex(std::string(kTime) + "warn two lines \n"));
    await(logs.remove("a"));
    EXPECT_EQ(await(logs.tail("a", 10)), "");
    await(logs.remove("a"));
    EXPECT_NE(await(logs.tail("b", 10)), "");
}

TEST(JobLogs, TakeBoundedSpace) {
    const test::TemporaryFolder folder;
    JobLogs logs(folder.path());
    const std::string long_line(100'000, 'x');
    int written = 0;
    for (std::uint64_t bytes = 0; bytes < 3 * JobLogs::kMaxFileBytes; bytes += long_line.size()) {
        logs.append("a", "info", std::to_string(written++) + " " + long_line);
    }
    std::uint64_t held = 0;
    for (const auto& file : std::filesystem::directory_iterator(folder.path())) {
        held += file.file_size();
    }
    EXPECT_LE(held, 2 * JobLogs::kMaxFileBytes + 2 * 101'000);
    const auto text = await(logs.tail("a", JobLogs::kMaxTail));
    EXPECT_GE(text.size(), JobLogs::kMaxFileBytes);
    EXPECT_THAT(text.substr(text.size() - long_line.size() - 60), HasSubstr(" " + std::to_string(written - 1) + " x"));
    // Both files are read, in their order.
    EXPECT_GT(lines_of(text), JobLogs::kMaxFileBytes / 101'000);
    await(logs.remove("a"));
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(JobLogs, AFolderThatCannotBeWrittenHoldsNobodyUp) {
    const test::TemporaryFolder folder;
    folder.write("file", "");
    JobLogs logs(folder / "file");
    logs.append("a", "info", "lost");
    EXPECT_EQ(await(logs.tail("b", 1)), "");
}

TEST(LoggedWorker, KeepsWhatAWorkerSaysInTheLogOfItsJob) {
    const test::TemporaryFolder folder;
    const auto logs = std::make_shared<JobLogs>(folder / "logs");
    WorkerProcessOptions options;
    options.program = "/bin/sh";
    options.arguments = {"-c", "echo cannot load >&2; exit 5"};
    const auto make = make_logged_workers(options, logs);
    boost::asio::io_context context;
    const auto worker = make(context.get_executor(), Slot{});
    WorkerStart start;
    start.spec_json = "{}";
    start.job_id = "job-1";
    std::vector<WorkerEvent> events;
    auto run = worker->run(start, [&](const WorkerEvent& event) { events.push_back(event); });
    auto ended = boost::asio::co_spawn(context, std::move(run), boost::asio::use_future);
    context.run_for(std::chrono::seconds(60));
    EXPECT_EQ(ended.get()->exit_code, 5);
    EXPECT_EQ(events.size(), 1U);
    const auto text = await(logs->tail("job-1", 100));
    EXPECT_EQ(lines_of(text), 4U);
    EXPECT_THAT(text, HasSubstr(" info a worker is started\n"));
    EXPECT_THAT(text, HasSubstr(" stderr cannot load\n"));
    EXPECT_THAT(text, HasSubstr(" error the worker exited with code 5"));
    EXPECT_TRUE(text.ends_with(" info the worker has ended, exit code 5\n")) << text;
}

TEST(LoggedWorker, F12TheLogOfTheServiceTakesABoundedPartOfWhatAWorkerWrites) {
    const test::TemporaryFolder folder;
    const auto logs = std::make_shared<JobLogs>(folder / "logs");
    WorkerProcessOptions options;
    options.program = "/bin/sh";
    options.arguments = {"-c", "yes 'a line of a worker that has much to say' | head -n 100000 >&2"};
    boost::asio::io_context context;
    const auto worker = make_logged_workers(options, logs)(context.get_executor(), Slot{});
    WorkerStart start;
    start.spec_json = "{}";
    start.job_id = "job-1";
    ::testing::internal::CaptureStderr();
    auto ended = boost::asio::co_spawn(context, worker->run(start, [](const WorkerEvent&) {}), boost::asio::use_future);
    context.run_for(std::chrono::seconds(60));
    const auto logged = ::testing::internal::GetCapturedStderr();
    ASSERT_TRUE(ended.get());
    EXPECT_LT(lines_of(logged), 50'000U);
    EXPECT_GT(lines_of(logged), 1000U);
    EXPECT_THAT(logged, ::testing::ContainsRegex("job-1: [0-9]+ lines that its worker wrote are left out"));
    EXPECT_GE(lines_of(await(logs->tail("job-1", JobLogs::kMaxTail))), 50'000U) << "its own log is bounded by itself";
}

TEST(LoggedWorker, RunsInItsSlot) {
    const test::TemporaryFolder folder;
    const auto logs = std::make_shared<JobLogs>(folder / "logs");
    WorkerProcessOptions options;
    options.program = "/bin/sh";
    options.arguments = {"-c", "grep Cpus_allowed_list /proc/self/status >&2; echo gpu $CUDA_VISIBLE_DEVICES >&2"};
    const auto core = allowed_cores().back();
    boost::asio::io_context context;
    const auto worker = make_logged_workers(options, logs)(context.get_executor(), Slot{1, {core}, "GPU-3"});
    WorkerStart start;
    start.spec_json = "{}";
    start.job_id = "job-1";
    auto ended = boost::asio::co_spawn(context, worker->run(start, [](const WorkerEvent&) {}), boost::asio::use_future);
    context.run_for(std::chrono::seconds(60));
    ASSERT_TRUE(ended.get());
    const auto text = await(logs->tail("job-1", 100));
    EXPECT_THAT(text, HasSubstr("Cpus_allowed_list:\t" + std::to_string(core) + "\n"));
    EXPECT_THAT(text, HasSubstr("gpu GPU-3\n"));
}

class LogRoutesTest : public test::RoutesTest {};

TEST_F(LogRoutesTest, AnswerTheLogOfAJobThatThereIs) {
    const auto id = submitted("a");
    const auto empty = get("/v1/jobs/{id}/logs", id);
    EXPECT_EQ(empty.status, 200U);
    EXPECT_EQ(empty.body, "");
    EXPECT_EQ(empty.content_type, "text/plain; charset=utf-8");
    logs_->append(id, "info", "one");
    logs_->append(id, "info", "two");
    EXPECT_EQ(lines_of(get("/v1/jobs/{id}/logs", id).body), 2U);
    EXPECT_THAT(get("/v1/jobs/{id}/logs", id, {{"tail", "1"}}).body, MatchesRegex(std::string(kTime) + "info two\n"));
    for (const char* bad : {"0", "-1", "100001", "x", ""}) {
        EXPECT_EQ(get("/v1/jobs/{id}/logs", id, {{"tail", bad}}).status, 400U) << bad;
    }
    // No id but that of a job is made the name of a file.
    logs_->append("other", "info", "secret");
    for (const char* other : {"other", "../jobs", ""}) {
        EXPECT_EQ(get("/v1/jobs/{id}/logs", other).status, 404U) << other;
    }
}

TEST_F(LogRoutesTest, GoesWithItsJob) {
    const auto id = submitted("a");
    logs_->append(id, "info", "one");
    finish(world_.fleet.next());
    test::wait_for_state(*world_.manager, id, api::JobState::succeeded);
    EXPECT_EQ(remove(id).status, 200U);
    EXPECT_EQ(get("/v1/jobs/{id}/logs", id).status, 404U);
    EXPECT_TRUE(std::filesystem::is_empty(world_.folder / "logs"));
}

TEST_F(LogRoutesTest, SaysWhenItCannotBeRead) {
    const auto id = submitted("a");
    std::filesystem::create_directories(world_.folder / "logs" / (id + ".log"));
    const auto answer = get("/v1/jobs/{id}/logs", id);
    EXPECT_EQ(answer.status, 503U);
    EXPECT_EQ(code(answer), "log_unavailable");
}

}  // namespace
}  // namespace distilld
