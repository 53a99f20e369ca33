#include "models/serving/local_teacher.hpp"

#include <gmock/gmock.h>

#include <atomic>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <exception>
#include <functional>
#include <future>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>

#include "pipeline/core/target_rows.hpp"
#include "pipeline/teacher/probe/probe_checks.hpp"
#include "pipeline/teacher/probe/teacher_fingerprint.hpp"

namespace distilld::models {
namespace {

namespace asio = boost::asio;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::uint32_t kVocabulary = 10;
constexpr std::int32_t kFails = 7;
constexpr std::int32_t kNamesAStranger = 8;
constexpr std::int32_t kTakesAllMemory = 9;

/// What happened to the models of a test.
struct Seen {
    std::mutex mutex;
    std::vector<std::int32_t> asked;  ///< first id of each request, in order
    std::vector<std::thread::id> threads;
    int loaded = 0;
    std::atomic<int> alive{0};
    std::promise<void>* began = nullptr;  ///< the next request that begins with 5 tells here, and waits for `gate`
    std::shared_future<void> gate;
};

/// The most likely token is the one that was read.
class ReadBack final : public TeacherScorer {
  public:
    explicit ReadBack(Seen& seen) : seen_(seen) {
        ++seen_.alive;
        model_.vocabulary_size = kVocabulary;
        model_.max_positions = 6;
        model_.hidden_size = 2;
        model_.dtype = "fp32";
        model_.device = "cpu";
        model_.threads = 1;
        model_.warnings = {"config.json: an odd thing is passed over"};
        model_.head.dtype = "F32";
        model_.head.sha256 = "5a5a";
        model_.head.values = std::as_bytes(std::span(kHead));
        model_.hidden_type = ScoreRequest::HiddenType::f32;
    }
    ~ReadBack() override { --seen_.alive; }
    ReadBack(const ReadBack&) = delete;
    ReadBack& operator=(const ReadBack&) = delete;

    [[nodiscard]] const ServedModel& model() const override { return model_; }

    Result<ScoreResult> score(const ScoreRequest& request) override {
        const std::int32_t first = request.input_ids.front();
        {
            const std::lock_guard lock(seen_.mutex);
            seen_.asked.push_back(first);
            seen_.threads.push_back(std::this_thread::get_id());
        }
        if (first == 5 && seen_.began != nullptr) {
            std::exchange(seen_.began, nullptr)->set_value();
            seen_.gate.wait();
        }
        if (first == kFails) {
            throw std::runtime_error("seven\nat some line of libtorch");
        }
        if (first == kTakesAllMemory) {
            throw std::bad_alloc();
        }
        ScoreResult result;
        for (const std::int32_t id : request.input_ids) {
            if (request.mode == ScoreRequest::Mode::topk) {
                const bool stranger = first == kNamesAStranger;
                result.topk_ids.push_back(stranger ? kVocabulary - 1 : static_cast<std::uint32_t>(id));
                result.topk_logprobs.push_back(0xB800);  // -0.5
                result.tail_logprob.push_back(-0.9327F);
            } else if (request.mode == ScoreRequest::Mode::hidden) {
                result.hidden_f32.insert(result.hidden_f32.end(), {1.0F, static_cast<float>(id)});
            } else {
                result.logits_f16.insert(result.logits_f16.end(), kVocabulary, 0x3C00);
            }
        }
        return result;
    }

  private:
    static constexpr float kHead[2 * kVocabulary] = {1, 2, 3, 4};

    Seen& seen_;
    ServedModel model_;
};

class LocalTeacherTest : public ::testing::Test {
  protected:
    LocalTeacherTest() {
        spec_.model_dir = "/models/small";
        spec_.top_k = 1;
        options_.batch_columns = 4;
        options_.on_warning = [this](const std::string& text) { warnings_.push_back(text); };
        load_ = [this](const TeacherSpec& spec, bool with_head) -> Result<std::unique_ptr<TeacherScorer>> {
            ++seen_.loaded;
            loaded_spec_ = spec;
            with_head_ = with_head;
            return std::make_unique<ReadBack>(seen_);
        };
    }

    std::unique_ptr<TeacherSource> make() { return make_local_teacher(io_.get_executor(), spec_, load_, options_); }

    Result<TeacherInfo> probe(TeacherSource& teacher, std::uint32_t vocabulary = kVocabulary) {
        std::optional<Result<TeacherInfo>> info;
        asio::co_spawn(io_, teacher.probe(vocabulary),
                       [&info](const std::exception_ptr&, Result<TeacherInfo> result) { info = std::move(result); });
        io_.restart();
        io_.run();
        return std::move(info).value();
    }

    std::unique_ptr<TeacherSource> probed(std::uint32_t vocabulary = kVocabulary) {
        auto teacher = make();
        const auto info = probe(*teacher, vocabulary);
        EXPECT_TRUE(info) << info.error().message;
        const std::lock_guard lock(seen_.mutex);
        seen_.asked.clear();
        return teacher;
    }

    static std::shared_ptr<const TokenBatch> tokens(std::int32_t first) {
        auto batch = std::make_shared<TokenBatch>(*probe_tokens(kVocabulary, 1, 4));
        batch->input_ids.front() = first;
        return batch;
    }

    using Answer = std::optional<FetchResult<EncodedAnswer>>;

    void begin_fetch(TeacherSource& teacher, std::int32_t first, Answer& answer, asio::cancellation_signal& cancel) {
        // A deadline that is over already: asking again would not be sooner, so it does not count.
        asio::co_spawn(io_, teacher.fetch(0, tokens(first), std::chrono::nanoseconds(0)),
                       asio::bind_cancellation_slot(
                           cancel.slot(), [&answer](const std::exception_ptr&, FetchResult<EncodedAnswer> result) {
                               answer.emplace(std::move(result));
                           }));
    }

    FetchResult<TeacherTargets> fetch(TeacherSource& teacher, std::int32_t first) {
        Answer answer;
        asio::cancellation_signal cancel;
        begin_fetch(teacher, first, answer, cancel);
        io_.restart();
        io_.run();
        return *answer ? (*answer)->decode() : FetchResult<TeacherTargets>(answer->error());
    }

    Seen seen_;
    asio::io_context io_{1};
    TeacherSpec spec_;
    TeacherSpec loaded_spec_;
    bool with_head_ = false;
    LoadTeacherModel load_;
    LocalTeacherOptions options_;
    std::vector<std::string> warnings_;
};

TEST_F(LocalTeacherTest, SaysWhatTheModelSays) {
    auto teacher = make();
    EXPECT_EQ(teacher->endpoint_count(), 1U);
    EXPECT_EQ(teacher->endpoint_name(0), "/models/small");
    EXPECT_FALSE(teacher->is_slow_by_chance()) << "it is not hedged";
    const auto info = probe(*teacher);
    ASSERT_TRUE(info) << info.error().message;
    EXPECT_EQ(loaded_spec_.model_dir, "/models/small");
    EXPECT_FALSE(with_head_);
    EXPECT_EQ(info->kind, TeacherTargets::Kind::topk);
    EXPECT_EQ(info->width, 1U);
    EXPECT_EQ(info->top_k, 1U);
    EXPECT_EQ(info->vocabulary_size, kVocabulary);
    EXPECT_TRUE(info->deterministic);
    EXPECT_EQ(info->fingerprint, "[[[1,-0.5]],[[2,-0.5]],[[0,-0.5]]]") << "the tokens that every teacher is asked";
    EXPECT_THAT(info->description, AllOf(StartsWith("/models/small: in the process"), HasSubstr("top 1")));
    EXPECT_THAT(warnings_, ElementsAre("/models/small: config.json: an odd thing is passed over"));
    const auto targets = fetch(*teacher, 3);
    ASSERT_TRUE(targets) << targets.error().message;
    EXPECT_EQ(targets->rows, 1U);
    EXPECT_EQ(targets->columns, 4U);
    EXPECT_EQ(targets->ids.bytes[0], std::byte{3});
    EXPECT_EQ(targets->values.type, ElementType::f16);
    EXPECT_EQ(targets->held_bytes, teacher->answer_size(1, 4).held_bytes);
    EXPECT_EQ(targets->wire_bytes, 0U);
    EXPECT_EQ(seen_.loaded, 1);
    for (const auto& thread : seen_.threads) {
        EXPECT_EQ(thread, seen_.threads.front()) << "one thread computes";
        EXPECT_NE(thread, std::this_thread::get_id());
    }
}

TEST_F(LocalTeacherTest, SendsHiddenStatesOrLogitsOfAllTokens) {
    spec_.top_k = 0;
    auto teacher = make();
    const auto info = probe(*teacher);
    ASSERT_TRUE(info) << info.error().message;
    EXPECT_TRUE(with_head_);
    EXPECT_EQ(info->kind, TeacherTargets::Kind::hidden_states);
    EXPECT_EQ(info->width, 2U);
    ASSERT_TRUE(info->head);
    EXPECT_EQ(info->head->rows, kVocabulary);
    EXPECT_EQ(info->head->columns, 2U);
    EXPECT_THAT(info->fingerprint, StartsWith("[[[1,")) << "of the logits that the head makes";
    const auto hidden = fetch(*teacher, 3);
    ASSERT_TRUE(hidden) << hidden.error().message;
    EXPECT_EQ(hidden->kind, TeacherTargets::Kind::hidden_states);
    EXPECT_EQ(hidden->held_bytes, teacher->answer_size(1, 4).held_bytes);

    spec_.targets = TargetsChoice::logits;
    const auto other = probed();
    EXPECT_FALSE(with_head_);
    const auto logits = fetch(*other, 3);
    ASSERT_TRUE(logits) << logits.error().message;
    EXPECT_EQ(logits->kind, TeacherTargets::Kind::logits);
    EXPECT_EQ(logits->width, kVocabulary);
    EXPECT_EQ(logits->held_bytes, other->answer_size(1, 4).held_bytes);
}

TEST_F(LocalTeacherTest, WhatFailsIsFinalAndNamesTheField) {
    const auto teacher = probed();
    const auto failed = fetch(*teacher, kFails);
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().kind, FailureKind::rejected);
    EXPECT_EQ(failed.error().message, "/teacher/model_dir: /models/small: the teacher failed: seven");
    const auto full = fetch(*teacher, kTakesAllMemory);
    ASSERT_FALSE(full);
    EXPECT_THAT(full.error().message, HasSubstr("not enough memory"));
    EXPECT_TRUE(fetch(*teacher, 1)) << "the next is another matter";
}

TEST_F(LocalTeacherTest, ItsAnswersAreOverItsOwnTokens) {
    const auto teacher = probed(9);
    const auto stranger = fetch(*teacher, kNamesAStranger);
    ASSERT_TRUE(stranger) << stranger.error().message;
    EXPECT_EQ(stranger->vocabulary, kVocabulary);
    EXPECT_FALSE(find_defect(*stranger, kVocabulary));
    EXPECT_TRUE(find_defect(*stranger, 9)) << "what becomes of the tenth is decided by whoever knows the student";
}

TEST_F(LocalTeacherTest, TheProbeRefusesAModelThatDoesNotFit) {
    options_.batch_columns = 7;
    const auto long_rows = probe(*make());
    ASSERT_FALSE(long_rows);
    EXPECT_EQ(long_rows.error().message,
              "/dataset/sequence_length is 7, the model takes 6 positions at most (max_position_embeddings)");
    options_.batch_columns = 4;
    load_ = [](const TeacherSpec&, bool) -> Result<std::unique_ptr<TeacherScorer>> {
        return invalid_input("/models/small/config.json: cannot open");
    };
    EXPECT_EQ(probe(*make()).error().message, "/teacher/model_dir: /models/small/config.json: cannot open");
    load_ = [](const TeacherSpec&, bool) -> Result<std::unique_ptr<TeacherScorer>> { throw std::bad_alloc(); };
    EXPECT_EQ(probe(*make()).error().message,
              "/teacher/model_dir: /models/small: the teacher could not be loaded: not enough memory");
    EXPECT_EQ(seen_.alive, 0) << "what is refused is let go of";
}

TEST_F(LocalTeacherTest, ACancelledFetchIsNotBegunAndOneThatComputesEndsByItself) {
    const auto teacher = probed();
    std::promise<void> began;
    std::promise<void> open;
    seen_.began = &began;
    seen_.gate = open.get_future().share();
    Answer first;
    Answer second;
    Answer third;
    asio::cancellation_signal cancel_first;
    asio::cancellation_signal cancel_second;
    asio::cancellation_signal cancel_third;
    begin_fetch(*teacher, 5, first, cancel_first);
    begin_fetch(*teacher, 2, second, cancel_second);
    begin_fetch(*teacher, 3, third, cancel_third);
    io_.restart();
    std::thread controller([&] {
        began.get_future().wait();
        std::promise<void> cancelled;
        const std::function<void()> look = [&] { first&& second ? cancelled.set_value() : asio::post(io_, look); };
        asio::post(io_, [&] {
            cancel_first.emit(asio::cancellation_type::terminal);
            cancel_second.emit(asio::cancellation_type::terminal);
            look();
        });
        cancelled.get_future().wait();
        open.set_value();
    });
    io_.run();
    controller.join();
    ASSERT_TRUE(first && !*first);
    EXPECT_EQ(first->error().kind, FailureKind::cancelled);
    ASSERT_TRUE(second && !*second);
    EXPECT_EQ(second->error().kind, FailureKind::cancelled);
    ASSERT_TRUE(third && *third);
    const std::lock_guard lock(seen_.mutex);
    EXPECT_THAT(seen_.asked, ElementsAre(5, 3)) << "in the order of the fetches, without what nobody waits for";
}

TEST_F(LocalTeacherTest, LetsGoOfTheModelWhenItIsClosed) {
    const auto teacher = probed();
    EXPECT_EQ(seen_.alive, 1);
    teacher->close();
    const auto late = fetch(*teacher, 1);
    EXPECT_EQ(seen_.alive, 0);
    ASSERT_FALSE(late);
    EXPECT_THAT(late.error().message, HasSubstr("has been closed"));
}

}  // namespace
}  // namespace distilld::models
