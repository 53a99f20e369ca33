#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <span>

#include "pipeline/core/target_rows.hpp"
#include "tests/unit/pipeline/graph/graph_fixture.hpp"

namespace distilld {
namespace {

using namespace std::chrono_literals;
using test::FakeStudent;
using test::FakeTeacher;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::Truly;

constexpr std::uint32_t kTokensPerRow = 4;

/// Rows that name themselves: all ids of row r of a part are `first` + r.
class PartRows final : public Dataset {
  public:
    PartRows(std::uint64_t rows, std::int32_t first) : rows_(rows), first_(first) {}
    std::uint64_t row_count() const override { return rows_; }
    std::uint64_t token_count() const override { return rows_ * kTokensPerRow; }
    const std::string& hash() const override { return hash_; }
    TokenBatch batch(std::uint64_t number, const std::vector<std::uint64_t>& rows) const override {
        TokenBatch made;
        made.number = number;
        made.rows = static_cast<std::uint32_t>(rows.size());
        made.columns = kTokensPerRow;
        made.row_ids = rows;
        for (const std::uint64_t row : rows) {
            made.input_ids.insert(made.input_ids.end(), kTokensPerRow, first_ + static_cast<std::int32_t>(row));
            made.labels.insert(made.labels.end(), kTokensPerRow, 1);
            made.lengths.push_back(kTokensPerRow);
        }
        made.target_tokens = rows.size() * kTokensPerRow;
        return made;
    }
    std::uint64_t target_tokens(std::uint64_t) const override { return kTokensPerRow; }

  private:
    std::uint64_t rows_;
    std::int32_t first_;
    std::string hash_ = "part";
};

/// Says of each position its token and, as the value, minus its own number.
class NumberedTeacher final : public TeacherSource {
  public:
    explicit NumberedTeacher(float number) : number_(number) {}

    std::size_t endpoint_count() const override { return 1; }
    const std::string& endpoint_name(std::size_t) const override { return fake.endpoint_name(0); }
    boost::asio::awaitable<Result<TeacherInfo>> probe(std::uint32_t) override { co_return TeacherInfo{}; }
    AnswerSize answer_size(std::uint32_t, std::uint32_t) const override { return {0, 100}; }
    boost::asio::awaitable<FetchResult<EncodedAnswer>> fetch(std::size_t endpoint,
                                                             std::shared_ptr<const TokenBatch> tokens,
                                                             std::chrono::nanoseconds deadline) override {
        rows += tokens->rows;
        FetchResult<EncodedAnswer> answer = co_await fake.fetch(endpoint, tokens, deadline);
        if (!answer) {
            co_return answer.error();
        }
        struct Arrays {
            std::vector<std::int32_t> ids;
            std::vector<float> values;
        };
        auto arrays = std::make_shared<Arrays>();
        arrays->ids = tokens->input_ids;
        arrays->values.assign(tokens->input_ids.size(), -number_);
        TeacherTargets targets;
        targets.rows = tokens->rows;
        targets.columns = tokens->columns;
        targets.width = 1;
        targets.held_bytes = 100;
        targets.ids = {ElementType::i32, std::as_bytes(std::span(arrays->ids))};
        targets.values = {ElementType::f32, std::as_bytes(std::span(arrays->values))};
        targets.owner = arrays;
        co_return targets;
    }
    void close() override {}

    FakeTeacher fake;  ///< decides latency and failures
    std::uint64_t rows = 0;

  private:
    float number_;
};

/// Three parts of 6, 3 and 1 rows: most micro-batches have no row of the last.
std::shared_ptr<const MixedDataset> three_parts() {
    std::vector<DatasetPart> parts{{"a", std::make_shared<PartRows>(6, 100)},
                                   {"b", std::make_shared<PartRows>(3, 200)},
                                   {"c", std::make_shared<PartRows>(1, 300)}};
    std::vector<PartRow> order{{0, 0}, {1, 0}, {0, 1}, {0, 2}, {2, 0}, {1, 1}, {0, 3}, {0, 4}, {1, 2}, {0, 5}};
    return std::make_shared<const MixedDataset>(std::move(parts), std::move(order));
}

class TeacherLanesTest : public ::testing::Test {
  protected:
    TeacherLanesTest() {
        options_.training.micro_batches = 2;
        options_.training.batch_size = 2;
        options_.total_steps = 30;
        for (std::size_t i = 0; i < 3; ++i) {
            GraphTeacher& teacher = options_.teachers.emplace_back();
            teacher.name = std::string(1, static_cast<char>('a' + i));
            teacher.source = std::array{&a_, &b_, &c_}[i];
            teacher.options.scheduler.limit.ceiling = 4;
            teacher.options.scheduler.retry.base = 1ms;
            teacher.options.scheduler.breaker.cooldown = 10ms;
            teacher.options.watch.grace = 20ms;
            teacher.options.deadline = 5s;
        }
        student_.on_stage = [this](const MicroBatch& batch) { check(batch); };
    }

    /// Each row's targets are of its own teacher and of its own tokens.
    void check(const MicroBatch& batch) {
        ASSERT_TRUE(batch.targets);
        ASSERT_EQ(batch.targets->rows, batch.tokens->rows);
        for (std::size_t i = 0; i < batch.tokens->input_ids.size(); ++i) {
            const std::int32_t id = batch.tokens->input_ids[i];
            wrong_ += element_as_id(batch.targets->ids, i) != static_cast<std::uint32_t>(id) ? 1 : 0;
            wrong_ += element_as_float(batch.targets->values, i) != -static_cast<float>(id / 100) ? 1 : 0;
        }
        staged_.push_back(batch.tokens->number);
    }

    Result<GraphOutcome> run() {
        boost::asio::io_context io(1);
        boost::asio::thread_pool compute(1);
        boost::asio::thread_pool staging(1);
        boost::asio::thread_pool disk(1);
        boost::asio::thread_pool decode(2);
        GraphHooks hooks;
        hooks.on_event = [this](const WorkerEvent& event) {
            events_.push_back(event);
            if (on_event_) {
                on_event_(event);
            }
        };
        hooks.commit_checkpoint = [](std::uint64_t, const StudentSnapshot&) { return Result<std::string>("folder"); };
        auto batches = std::make_shared<BatchSource>(dataset_, BatchPlan(dataset_->row_count(), 2, 1), 2);
        const GraphExecutors executors{io.get_executor(),   compute.get_executor(), staging.get_executor(),
                                       disk.get_executor(), decode.get_executor(),  2};
        auto graph = make_training_graph(executors, student_, batches, {}, options_, hooks, nullptr);
        graph_ = graph.get();
        std::optional<Result<GraphOutcome>> outcome;
        boost::asio::co_spawn(io, graph->run(), [&](const std::exception_ptr& thrown, Result<GraphOutcome> ended) {
            EXPECT_FALSE(thrown);
            outcome = std::move(ended);
        });
        io.run();
        compute.join();
        staging.join();
        disk.join();
        decode.join();
        return *outcome;
    }

    std::vector<std::uint64_t> all_numbers() const {
        std::vector<std::uint64_t> numbers(60);
        std::iota(numbers.begin(), numbers.end(), std::uint64_t{0});
        return numbers;
    }

    std::shared_ptr<const MixedDataset> dataset_ = three_parts();
    NumberedTeacher a_{1};
    NumberedTeacher b_{2};
    NumberedTeacher c_{3};
    FakeStudent student_;
    GraphOptions options_;
    std::vector<WorkerEvent> events_;
    std::function<void(const WorkerEvent&)> on_event_;
    TrainingGraph* graph_ = nullptr;
    std::vector<std::uint64_t> staged_;
    int wrong_ = 0;
};

TEST_F(TeacherLanesTest, EachRowIsItsTeachersInOrderWhateverTheOrderOfAnswers) {
    for (NumberedTeacher* teacher : {&a_, &b_, &c_}) {
        teacher->fake.decide = [teacher](std::uint64_t n, std::size_t) {
            return FakeTeacher::Fate{std::chrono::microseconds((n * 7919 + teacher->rows * 131) % 4000), {}};
        };
    }
    for (auto& teacher : options_.teachers) {
        teacher.options.scheduler.hedge.enabled = false;  // requests are counted below
    }
    const auto outcome = run();
    ASSERT_TRUE(outcome) << outcome.error().message;
    EXPECT_EQ(wrong_, 0);
    EXPECT_EQ(staged_, all_numbers());
    const FetchCounters& fetch = outcome->last.fetch;
    ASSERT_EQ(fetch.teachers.size(), 3U);
    EXPECT_EQ(fetch.teachers[0].teacher, "a");
    // 120 rows are 12 epochs: each row is asked for once in each.
    EXPECT_EQ(a_.rows, 72U);
    EXPECT_EQ(b_.rows, 36U);
    EXPECT_EQ(c_.rows, 12U);
    EXPECT_EQ(fetch.teachers[2].completed, 12U) << "a micro-batch without a row of it is no request";
    EXPECT_EQ(fetch.requests, a_.fake.asked.size() + b_.fake.asked.size() + c_.fake.asked.size());
    EXPECT_EQ(fetch.completed, fetch.teachers[0].completed + fetch.teachers[1].completed + 12U);
}

TEST_F(TeacherLanesTest, OneInFlightGivesTheSame) {
    options_.training.parallel = false;
    const auto outcome = run();
    ASSERT_TRUE(outcome) << outcome.error().message;
    EXPECT_EQ(wrong_, 0);
    EXPECT_EQ(staged_, all_numbers());
    EXPECT_EQ(a_.fake.max_in_flight, 1);
}

TEST_F(TeacherLanesTest, ASingleOneHasItsNameAndItsRows) {
    std::vector<DatasetPart> parts{{"a", std::make_shared<PartRows>(4, 100)}};
    dataset_ =
        std::make_shared<const MixedDataset>(std::move(parts), std::vector<PartRow>{{0, 3}, {0, 2}, {0, 1}, {0, 0}});
    options_.teachers.resize(1);
    options_.teachers[0].options.scheduler.retry.max_retries = 0;
    const auto outcome = run();
    ASSERT_TRUE(outcome) << outcome.error().message;
    EXPECT_EQ(wrong_, 0);
    EXPECT_EQ(staged_, all_numbers());
    ASSERT_EQ(outcome->last.fetch.teachers.size(), 1U);
    EXPECT_EQ(outcome->last.fetch.teachers[0].teacher, "a");
    EXPECT_EQ(outcome->last.fetch.teachers[0].completed, outcome->last.fetch.completed);
    a_.fake.decide = [](std::uint64_t, std::size_t) {
        return FakeTeacher::Fate{100us, FetchError{FailureKind::server_error, "http://a/: a headache", {}}};
    };
    const auto failed = run();
    ASSERT_FALSE(failed);
    EXPECT_THAT(failed.error().message, StartsWith("teacher a: micro-batch "));
}

TEST_F(TeacherLanesTest, ASlowTeacherIsTheOneThatIsWaitedFor) {
    b_.fake.decide = [](std::uint64_t, std::size_t) { return FakeTeacher::Fate{100ms, {}}; };
    const auto outcome = run();
    ASSERT_TRUE(outcome) << outcome.error().message;
    const std::vector<TeacherCounters>& teachers = outcome->last.fetch.teachers;
    EXPECT_GT(teachers[1].wait_seconds, teachers[0].wait_seconds);
    EXPECT_GT(teachers[1].wait_seconds, teachers[2].wait_seconds);
    EXPECT_GT(teachers[1].wait_seconds, 0.02);
}

TEST_F(TeacherLanesTest, TheFirstToFailEndsTheRunAndIsNamed) {
    options_.teachers[1].options.scheduler.retry.max_retries = 1;
    b_.fake.decide = [](std::uint64_t n, std::size_t) {
        FakeTeacher::Fate fate{100us, {}};
        if (n >= 20) {
            fate.failure = FetchError{FailureKind::server_error, "http://b/: a headache", {}};
        }
        return fate;
    };
    const auto outcome = run();
    ASSERT_FALSE(outcome);
    EXPECT_EQ(outcome.error().kind, ErrorKind::teacher);
    EXPECT_THAT(outcome.error().message, AllOf(StartsWith("teacher b: micro-batch "), HasSubstr("a headache")));
    EXPECT_EQ(a_.fake.in_flight, 0);
    EXPECT_EQ(c_.fake.in_flight, 0);
}

TEST_F(TeacherLanesTest, LostPatienceNamesTheFieldOfThatTeacher) {
    options_.teachers[1].options.scheduler.retry.outage_timeout = 50ms;
    b_.fake.decide = [](std::uint64_t, std::size_t) {
        return FakeTeacher::Fate{100us, FetchError{FailureKind::connection, "http://b/: refused", {}}};
    };
    const auto outcome = run();
    ASSERT_FALSE(outcome);
    EXPECT_THAT(outcome.error().message, HasSubstr("(/teachers/b/patience_secs is over)"));
}

TEST_F(TeacherLanesTest, AnOutageOfOneIsSaidWithItsNameAndOver) {
    // However slow the machine is: the outage lasts until it is reported. It may also see a hang.
    options_.teachers[1].options.watch.repeat = 0ms;
    const auto is_outage = [](const WorkerEvent& event) {
        const auto* waiting = std::get_if<WaitingEvent>(&event);
        return waiting != nullptr && waiting->message.starts_with("teacher b: no answer from the teacher");
    };
    b_.fake.decide = [&](std::uint64_t, std::size_t) {
        FakeTeacher::Fate fate{100us, {}};
        if (std::ranges::none_of(events_, is_outage)) {
            fate.failure = FetchError{FailureKind::connection, "http://b/: refused", {}};
        }
        return fate;
    };
    const auto outcome = run();
    ASSERT_TRUE(outcome) << outcome.error().message;
    EXPECT_EQ(wrong_, 0);
    std::vector<WaitingEvent> waits;
    std::vector<std::string> warnings;
    for (const WorkerEvent& event : events_) {
        if (const auto* waiting = std::get_if<WaitingEvent>(&event)) {
            if (waiting->message.starts_with("teacher b: ")) {
                waits.push_back(*waiting);
            }
        } else if (const auto* log = std::get_if<LogEvent>(&event)) {
            warnings.push_back(log->message);
        }
    }
    ASSERT_GE(waits.size(), 2U);
    EXPECT_THAT(events_, Contains(Truly(is_outage)));
    EXPECT_EQ(waits.front().code, "teacher_unavailable");
    EXPECT_EQ(waits.back().code, "");
    EXPECT_THAT(waits.back().message, StartsWith("teacher b: the teacher answers again, after "));
    EXPECT_THAT(warnings, Each(StartsWith("teacher b: ")));
}

TEST_F(TeacherLanesTest, ABugInOneSourceEndsTheRun) {
    c_.fake.decide = [](std::uint64_t, std::size_t) -> FakeTeacher::Fate { throw std::runtime_error("a bug"); };
    const auto outcome = run();
    ASSERT_FALSE(outcome);
    EXPECT_EQ(outcome.error().message, "teacher c: teacher stage: a bug");
}

TEST_F(TeacherLanesTest, ItEndsWhenTheRunIsCancelled) {
    a_.fake.decide = [](std::uint64_t n, std::size_t) { return FakeTeacher::Fate{n < 8 ? 100us : 1h, {}}; };
    options_.teachers[0].options.deadline = 2h;
    on_event_ = [this](const WorkerEvent& event) {
        if (std::holds_alternative<ProgressEvent>(event)) {
            graph_->cancel();
        }
    };
    const auto outcome = run();
    ASSERT_TRUE(outcome) << outcome.error().message;
    EXPECT_TRUE(outcome->cancelled);
    EXPECT_LT(staged_.size(), 60U);
    EXPECT_EQ(a_.fake.in_flight, 0);
}

TEST_F(TeacherLanesTest, AnOrderToLimitHoldsForEach) {
    for (NumberedTeacher* teacher : {&a_, &b_}) {
        teacher->fake.decide = [](std::uint64_t, std::size_t) { return FakeTeacher::Fate{1ms, {}}; };
    }
    on_event_ = [this](const WorkerEvent& event) {
        if (std::holds_alternative<ProgressEvent>(event)) {
            graph_->set_max_concurrent(1);
        }
    };
    const auto outcome = run();
    ASSERT_TRUE(outcome) << outcome.error().message;
    for (const TeacherCounters& teacher : outcome->last.fetch.teachers) {
        EXPECT_EQ(teacher.concurrency, 1U) << teacher.teacher;
    }
    EXPECT_EQ(outcome->last.fetch.concurrency, 3U);
}

TEST_F(TeacherLanesTest, RanksShareALimitOnlyForTeachersThatTheyShare) {
    options_.teachers[1].options.sharers = 2;
    on_event_ = [this](const WorkerEvent& event) {
        if (std::holds_alternative<ProgressEvent>(event)) {
            graph_->set_max_concurrent(2);
        }
    };
    const auto outcome = run();
    ASSERT_TRUE(outcome) << outcome.error().message;
    EXPECT_EQ(outcome->last.fetch.teachers.at(0).concurrency, 2U);
    EXPECT_EQ(outcome->last.fetch.teachers.at(1).concurrency, 1U);
}

}  // namespace
}  // namespace distilld
