#include "models/serving/local_teacher.hpp"

#include <algorithm>
#include <atomic>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/system/system_error.hpp>
#include <exception>
#include <optional>
#include <utility>

#include "models/serving/scored_targets.hpp"
#include "pipeline/async/abort.hpp"
#include "pipeline/async/condition.hpp"
#include "pipeline/async/run_on.hpp"
#include "pipeline/core/target_rows.hpp"
#include "pipeline/teacher/probe/endpoint_probe.hpp"
#include "pipeline/teacher/probe/probe_checks.hpp"
#include "pipeline/teacher/probe/teacher_fingerprint.hpp"
#include "pipeline/teacher/teacher_head.hpp"

namespace distilld::models {

namespace asio = boost::asio;

namespace {

constexpr const char* kField = "/teacher/model_dir";
constexpr const char* kRowLength = "/dataset/sequence_length";

/// Drops the position in libtorch's source that libtorch appends.
std::string first_line(std::string text) {
    text.resize(std::min(text.find('\n'), text.size()));
    return text;
}

template <class Function>
std::invoke_result_t<Function&> guarded(const char* what, Function function) {
    try {
        return function();
    } catch (const std::bad_alloc&) {
        return Error{ErrorKind::internal, std::string(what) + ": not enough memory"};
    } catch (const std::exception& error) {
        return Error{ErrorKind::internal, std::string(what) + ": " + first_line(error.what())};
    }
}

/// One micro-batch, from fetch() to the thread and back.
struct Question {
    Question(const asio::any_io_executor& io, std::shared_ptr<const TokenBatch> asked)
        : tokens(std::move(asked)), changed(io) {}

    std::shared_ptr<const TokenBatch> tokens;
    std::atomic<bool> dropped{false};  ///< fetch() no longer waits; read by the computing thread
    ScoreRequest request;
    std::optional<Result<ScoreResult>> result;  ///< belongs to the thread until `done`
    bool done = false;
    Condition changed;
};

class LocalTeacher final : public TeacherSource {
  public:
    LocalTeacher(asio::any_io_executor io, TeacherSpec spec, LoadTeacherModel load, LocalTeacherOptions options)
        : io_(std::move(io)), spec_(std::move(spec)), load_(std::move(load)), options_(std::move(options)) {}
    ~LocalTeacher() override {
        let_go();
        thread_.join();
    }
    LocalTeacher(const LocalTeacher&) = delete;
    LocalTeacher& operator=(const LocalTeacher&) = delete;

    std::size_t endpoint_count() const override { return 1; }
    const std::string& endpoint_name(std::size_t) const override { return spec_.model_dir; }
    bool is_slow_by_chance() const override { return false; }

    asio::awaitable<Result<TeacherInfo>> probe(std::uint32_t vocabulary_size) override {
        vocabulary_ = vocabulary_size;
        std::function<Result<TeacherInfo>()> work = [this]() -> Result<TeacherInfo> {
            return guarded("the teacher could not be loaded", [this] { return load_and_try(); });
        };
        Result<TeacherInfo> info = co_await run_on(thread_.get_executor(), std::move(work));
        if (!info) {
            co_return Error{info.error().kind, explained(info.error().message)};
        }
        if (options_.on_warning) {
            for (const std::string& warning : warnings_) {
                options_.on_warning(spec_.model_dir + ": " + warning);
            }
        }
        co_return info;
    }

    AnswerSize answer_size(std::uint32_t rows, std::uint32_t columns) const override {
        AnswerSize size;
        size.held_bytes = scored_bytes(std::uint64_t{rows} * columns, mode_, top_k_, model_);
        size.max_wire_bytes = 0;
        return size;
    }

    asio::awaitable<FetchResult<EncodedAnswer>> fetch(std::size_t, std::shared_ptr<const TokenBatch> tokens,
                                                      std::chrono::nanoseconds) override {
        auto question = std::make_shared<Question>(io_, std::move(tokens));
        asio::post(thread_, [this, question] { answer(question); });
        try {
            while (!question->done) {
                co_await question->changed.wait();
            }
        } catch (const boost::system::system_error& failure) {
            question->dropped = true;
            if (!is_abort(failure.code())) {
                throw;
            }
            co_return FetchError{FailureKind::cancelled, spec_.model_dir + ": cancelled", std::nullopt};
        }
        if (!*question->result) {
            co_return rejected(question->result->error().message);
        }
        co_return EncodedAnswer(std::make_unique<Checked>(*this, std::move(question)), 0);
    }

    void close() override { let_go(); }

  private:
    /// Checks the result on the thread that decodes answers.
    class Checked final : public EncodedAnswer::Decoder {
      public:
        Checked(const LocalTeacher& teacher, std::shared_ptr<Question> question)
            : folder_(teacher.spec_.model_dir), model_(teacher.model_), question_(std::move(question)) {}

        FetchResult<TeacherTargets> decode() override {
            TeacherTargets targets = scored_targets(question_->request, std::move(**question_->result), model_);
            if (const auto defect = find_defect(targets, model_.vocabulary_size)) {
                return FetchError{FailureKind::rejected, std::string(kField) + ": " + folder_ + ": " + *defect,
                                  std::nullopt};
            }
            return targets;
        }

      private:
        std::string folder_;
        ServedModel model_;
        std::shared_ptr<Question> question_;
    };

    /// Adds the field in question. A message about a file begins with the file's path.
    [[nodiscard]] std::string explained(const std::string& what) const {
        if (what.starts_with("/teacher/placement: ") || what.starts_with(kRowLength)) {
            return what;
        }
        const std::string& folder = spec_.model_dir;
        return std::string(kField) + ": " + (what.starts_with(folder) ? "" : folder + ": ") + what;
    }
    [[nodiscard]] FetchError rejected(const std::string& what) const {
        return {FailureKind::rejected, explained(what), std::nullopt};
    }

    void let_go() {
        asio::post(thread_, [this] { scorer_.reset(); });
    }

    // The following functions run on thread_.

    void answer(const std::shared_ptr<Question>& question) {
        if (question->dropped) {
            return;
        }
        question->request = score_request(*question->tokens, mode_, top_k_, model_);
        question->result = guarded("the teacher failed", [&]() -> Result<ScoreResult> {
            if (!scorer_) {
                return Error{ErrorKind::internal, "the teacher has been closed"};
            }
            return scorer_->score(question->request);
        });
        asio::post(io_, [question] {
            question->done = true;
            question->changed.notify();
        });
    }

    Result<TeacherInfo> load_and_try() {
        const bool may_be_hidden = spec_.top_k == 0 && spec_.targets != TargetsChoice::logits;
        Result<std::unique_ptr<TeacherScorer>> loaded = load_(spec_, may_be_hidden);
        if (!loaded) {
            return loaded.error();
        }
        scorer_ = std::move(*loaded);
        model_ = scorer_->model();
        warnings_ = std::exchange(model_.warnings, {});
        if (options_.batch_columns > model_.max_positions) {
            return invalid_input(std::string(kRowLength) + " is " + std::to_string(options_.batch_columns) +
                                 ", the model takes " + std::to_string(model_.max_positions) +
                                 " positions at most (max_position_embeddings)");
        }
        choose_mode();
        return try_out();
    }

    void choose_mode() {
        if (spec_.top_k > 0) {
            mode_ = ScoreRequest::Mode::topk;
            top_k_ = std::min(spec_.top_k, model_.vocabulary_size);
        } else {
            mode_ = spec_.targets == TargetsChoice::logits ? ScoreRequest::Mode::logits : ScoreRequest::Mode::hidden;
        }
    }

    Result<TeacherTargets> ask(const TokenBatch& tokens) {
        const ScoreRequest request = score_request(tokens, mode_, top_k_, model_);
        Result<ScoreResult> result = scorer_->score(request);
        if (!result) {
            return result.error();
        }
        return scored_targets(request, std::move(*result), model_);
    }

    /// Scores the probe's tokens, the same as for every other teacher.
    Result<TeacherInfo> try_out() {
        const auto tokens = probe_tokens(vocabulary_, 1);
        const Result<TeacherTargets> first = ask(*tokens);
        if (!first) {
            return first.error();
        }
        const Result<TeacherTargets> second = ask(*tokens);
        if (!second) {
            return second.error();
        }
        auto defect = find_defect(*first, model_.vocabulary_size);
        if (!defect) {
            defect = normalisation_defect(*first, vocabulary_);
        }
        if (defect) {
            return teacher_error(*defect);
        }
        TeacherInfo info;
        info.kind = first->kind;
        info.width = first->width;
        info.top_k = top_k_;
        info.vocabulary_size = model_.vocabulary_size;
        info.deterministic = same_targets(*first, *second);
        info.description = description();
        info.fingerprint = teacher_fingerprint(*first);
        info.tokenizer.hash = model_.tokenizer_hash;
        if (mode_ == ScoreRequest::Mode::hidden) {
            info.head = std::make_shared<const TeacherHead>(teacher_head_of(model_));
            const Result<TeacherTargets> logits = project_few(*first, *info.head);
            if (!logits) {
                return logits.error();
            }
            info.fingerprint = teacher_fingerprint(*logits);
        }
        model_.head = {};  // the student has it by now
        return info;
    }

    [[nodiscard]] std::string description() const {
        std::string what = "logits of " + std::to_string(model_.vocabulary_size) + " tokens";
        if (mode_ == ScoreRequest::Mode::topk) {
            what = "top " + std::to_string(top_k_);
        } else if (mode_ == ScoreRequest::Mode::hidden) {
            what = "hidden states of " + std::to_string(model_.hidden_size) + " values";
        }
        return spec_.model_dir + ": in the process, " + std::to_string(model_.parameters) + " parameters, " +
               model_.dtype + " on " + model_.device + ", threads " + std::to_string(model_.threads) + ", " + what;
    }

    asio::any_io_executor io_;
    TeacherSpec spec_;
    LoadTeacherModel load_;
    LocalTeacherOptions options_;
    // Set by the probe; constant afterwards.
    std::uint32_t vocabulary_ = 0;  ///< the student's vocabulary
    ServedModel model_;
    ScoreRequest::Mode mode_ = ScoreRequest::Mode::topk;
    std::uint32_t top_k_ = 0;
    std::vector<std::string> warnings_;
    std::unique_ptr<TeacherScorer> scorer_;  ///< made, used and destroyed on thread_
    asio::thread_pool thread_{1};
};

}  // namespace

std::unique_ptr<TeacherSource> make_local_teacher(asio::any_io_executor io, TeacherSpec spec, LoadTeacherModel load,
                                                  LocalTeacherOptions options) {
    return std::make_unique<LocalTeacher>(std::move(io), std::move(spec), std::move(load), std::move(options));
}

}  // namespace distilld::models
