#include "models/serving/local_teacher.hpp"

#include <algorithm>
#include <atomic>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_future.hpp>
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

constexpr const char* kRowLength = "/dataset/sequence_length";

/// Drops the position in libtorch's source that libtorch appends.
std::string first_line(std::string text) {
    text.resize(std::min(text.find('\n'), text.size()));
    return text;
}

/// The begin of a description, for the log.
std::string in_the_process(const std::string& path, const ServedModel& model) {
    return path + ": in the process, " + std::to_string(model.parameters) + " parameters, " + model.dtype + " on " +
           model.device + ", threads " + std::to_string(model.threads);
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

/// A model as its teacher sees it. Everything on the teacher's thread, except that answer_bytes() and
/// vocabulary_size() may be called on any once it is loaded.
class LocalModel {
  public:
    virtual ~LocalModel() = default;
    /// Loads it for a student with this vocabulary, and tries it out.
    virtual Result<TeacherInfo> load(std::uint32_t vocabulary) = 0;
    virtual Result<TeacherTargets> answer(const TokenBatch& tokens) = 0;
    /// Frees its memory.
    virtual void unload() = 0;
    [[nodiscard]] virtual std::uint64_t answer_bytes(std::uint64_t positions) const = 0;
    [[nodiscard]] virtual std::uint32_t vocabulary_size() const { return 0; }
    [[nodiscard]] virtual std::vector<std::string> warnings() const { return {}; }
};

/// One micro-batch, from fetch() to the thread and back.
struct Question {
    Question(const asio::any_io_executor& io, std::shared_ptr<const TokenBatch> asked)
        : tokens(std::move(asked)), changed(io) {}

    std::shared_ptr<const TokenBatch> tokens;
    std::atomic<bool> dropped{false};              ///< fetch() no longer waits; read by the computing thread
    std::optional<Result<TeacherTargets>> result;  ///< belongs to the thread until `done`
    bool done = false;
    Condition changed;
};

class LocalTeacher final : public TeacherSource {
  public:
    /// `field` names `path` in the spec.
    LocalTeacher(asio::any_io_executor io, std::string field, std::string path, std::unique_ptr<LocalModel> model,
                 LocalTeacherOptions options)
        : io_(std::move(io)),
          field_(std::move(field)),
          path_(std::move(path)),
          model_(std::move(model)),
          on_warning_(std::move(options.on_warning)),
          thread_(options.thread ? std::move(options.thread) : std::make_shared<asio::thread_pool>(1)) {}
    ~LocalTeacher() override {
        let_go();
        asio::post(*thread_, asio::use_future([] {})).wait();  // others may go on using the thread
    }
    LocalTeacher(const LocalTeacher&) = delete;
    LocalTeacher& operator=(const LocalTeacher&) = delete;

    std::size_t endpoint_count() const override { return 1; }
    const std::string& endpoint_name(std::size_t) const override { return path_; }
    bool is_slow_by_chance() const override { return false; }

    asio::awaitable<Result<TeacherInfo>> probe(std::uint32_t vocabulary_size) override {
        std::function<Result<TeacherInfo>()> work = [this, vocabulary_size]() -> Result<TeacherInfo> {
            return guarded("the teacher could not be loaded", [&] { return model_->load(vocabulary_size); });
        };
        Result<TeacherInfo> info = co_await run_on(thread_->get_executor(), std::move(work));
        if (!info) {
            co_return Error{info.error().kind, explained(info.error().message)};
        }
        if (on_warning_) {
            for (const std::string& warning : model_->warnings()) {
                on_warning_(path_ + ": " + warning);
            }
        }
        co_return info;
    }

    AnswerSize answer_size(std::uint32_t rows, std::uint32_t columns) const override {
        AnswerSize size;
        size.held_bytes = model_->answer_bytes(std::uint64_t{rows} * columns);
        size.max_wire_bytes = 0;
        return size;
    }

    asio::awaitable<FetchResult<EncodedAnswer>> fetch(std::size_t, std::shared_ptr<const TokenBatch> tokens,
                                                      std::chrono::nanoseconds) override {
        auto question = std::make_shared<Question>(io_, std::move(tokens));
        asio::post(*thread_, [this, question] { answer(question); });
        try {
            while (!question->done) {
                co_await question->changed.wait();
            }
        } catch (const boost::system::system_error& failure) {
            question->dropped = true;
            if (!is_abort(failure.code())) {
                throw;
            }
            co_return FetchError{FailureKind::cancelled, path_ + ": cancelled", std::nullopt};
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
            : place_(teacher.field_ + ": " + teacher.path_),
              vocabulary_(teacher.model_->vocabulary_size()),
              question_(std::move(question)) {}

        FetchResult<TeacherTargets> decode() override {
            if (const auto defect = find_defect(**question_->result, vocabulary_)) {
                return FetchError{FailureKind::rejected, place_ + ": " + *defect, std::nullopt};
            }
            return std::move(**question_->result);
        }

      private:
        std::string place_;
        std::uint32_t vocabulary_;
        std::shared_ptr<Question> question_;
    };

    /// Adds the field in question. A message about a file begins with the file's path.
    [[nodiscard]] std::string explained(const std::string& what) const {
        if (what.starts_with("/teacher/") || what.starts_with(kRowLength)) {
            return what;
        }
        return field_ + ": " + (what.starts_with(path_) ? "" : path_ + ": ") + what;
    }
    [[nodiscard]] FetchError rejected(const std::string& what) const {
        return {FailureKind::rejected, explained(what), std::nullopt};
    }

    void let_go() {
        asio::post(*thread_, [this] {
            model_->unload();
            loaded_ = false;
        });
    }

    /// On thread_.
    void answer(const std::shared_ptr<Question>& question) {
        if (question->dropped) {
            return;
        }
        question->result = guarded("the teacher failed", [&]() -> Result<TeacherTargets> {
            if (!loaded_) {
                return Error{ErrorKind::internal, "the teacher has been closed"};
            }
            return model_->answer(*question->tokens);
        });
        asio::post(io_, [question] {
            question->done = true;
            question->changed.notify();
        });
    }

    asio::any_io_executor io_;
    std::string field_;
    std::string path_;
    std::unique_ptr<LocalModel> model_;
    std::function<void(const std::string&)> on_warning_;
    bool loaded_ = true;  ///< used on thread_
    std::shared_ptr<asio::thread_pool> thread_;
};

/// A Hugging Face folder.
class LanguageModel final : public LocalModel {
  public:
    LanguageModel(TeacherSpec spec, LoadTeacherModel load, std::uint32_t batch_columns)
        : spec_(std::move(spec)), load_(std::move(load)), batch_columns_(batch_columns) {}

    Result<TeacherInfo> load(std::uint32_t vocabulary) override {
        const bool may_be_hidden = spec_.top_k == 0 && spec_.targets != TargetsChoice::logits;
        Result<std::unique_ptr<TeacherScorer>> loaded = load_(spec_, may_be_hidden);
        if (!loaded) {
            return loaded.error();
        }
        scorer_ = std::move(*loaded);
        model_ = scorer_->model();
        warnings_ = std::exchange(model_.warnings, {});
        if (batch_columns_ > model_.max_positions) {
            return invalid_input(std::string(kRowLength) + " is " + std::to_string(batch_columns_) +
                                 ", the model takes " + std::to_string(model_.max_positions) +
                                 " positions at most (max_position_embeddings)");
        }
        choose_mode();
        return try_out(vocabulary);
    }

    Result<TeacherTargets> answer(const TokenBatch& tokens) override {
        const ScoreRequest request = score_request(tokens, mode_, top_k_, model_);
        Result<ScoreResult> result = scorer_->score(request);
        if (!result) {
            return result.error();
        }
        return scored_targets(request, std::move(*result), model_);
    }

    void unload() override { scorer_.reset(); }

    std::uint64_t answer_bytes(std::uint64_t positions) const override {
        return scored_bytes(positions, mode_, top_k_, model_);
    }
    std::uint32_t vocabulary_size() const override { return model_.vocabulary_size; }
    std::vector<std::string> warnings() const override { return warnings_; }

  private:
    void choose_mode() {
        if (spec_.top_k > 0) {
            mode_ = ScoreRequest::Mode::topk;
            top_k_ = std::min(spec_.top_k, model_.vocabulary_size);
        } else {
            mode_ = spec_.targets == TargetsChoice::logits ? ScoreRequest::Mode::logits : ScoreRequest::Mode::hidden;
        }
    }

    /// Scores the probe's tokens, the same as for every other teacher.
    Result<TeacherInfo> try_out(std::uint32_t vocabulary) {
        const auto tokens = probe_tokens(vocabulary, 1);
        const Result<TeacherTargets> first = answer(*tokens);
        if (!first) {
            return first.error();
        }
        const Result<TeacherTargets> second = answer(*tokens);
        if (!second) {
            return second.error();
        }
        auto defect = find_defect(*first, model_.vocabulary_size);
        if (!defect) {
            defect = normalisation_defect(*first, vocabulary);
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
        return in_the_process(spec_.model_dir, model_) + ", " + what;
    }

    TeacherSpec spec_;
    LoadTeacherModel load_;
    std::uint32_t batch_columns_;
    ServedModel model_;
    ScoreRequest::Mode mode_ = ScoreRequest::Mode::topk;
    std::uint32_t top_k_ = 0;
    std::vector<std::string> warnings_;
    std::unique_ptr<TeacherScorer> scorer_;
};

/// A TorchScript file.
class LoadedModule final : public LocalModel {
  public:
    LoadedModule(TeacherSpec spec, LoadTeacherModule load, std::shared_ptr<const TokenBatch> samples)
        : spec_(std::move(spec)), load_(std::move(load)), samples_(std::move(samples)) {}

    Result<TeacherInfo> load(std::uint32_t) override {
        Result<std::unique_ptr<TeacherModule>> loaded = load_(spec_);
        if (!loaded) {
            return loaded.error();
        }
        module_ = std::move(*loaded);
        const Result<TeacherTargets> first = answer(*samples_);
        if (!first) {
            return first.error();
        }
        const Result<TeacherTargets> second = answer(*samples_);
        if (!second) {
            return second.error();
        }
        if (const auto defect = find_defect(*first, 0)) {
            return teacher_error(*defect);
        }
        sample_bytes_ = first->held_bytes / samples_->rows;
        TeacherInfo info;
        info.kind = first->kind;
        info.deterministic = same_targets(*first, *second);
        info.description = in_the_process(spec_.module, module_->model());
        info.fingerprint = teacher_fingerprint(*first);
        info.tensors = without_values(first->tensors);
        return info;
    }

    Result<TeacherTargets> answer(const TokenBatch& samples) override { return module_->answer(samples); }
    void unload() override { module_.reset(); }
    std::uint64_t answer_bytes(std::uint64_t positions) const override { return positions * sample_bytes_; }

  private:
    TeacherSpec spec_;
    LoadTeacherModule load_;
    std::shared_ptr<const TokenBatch> samples_;
    std::uint64_t sample_bytes_ = 0;
    std::unique_ptr<TeacherModule> module_;
};

}  // namespace

std::unique_ptr<TeacherSource> make_local_teacher(asio::any_io_executor io, TeacherSpec spec, LoadTeacherModel load,
                                                  LocalTeacherOptions options) {
    std::string folder = spec.model_dir;
    auto model = std::make_unique<LanguageModel>(std::move(spec), std::move(load), options.batch_columns);
    return std::make_unique<LocalTeacher>(std::move(io), "/teacher/model_dir", std::move(folder), std::move(model),
                                          std::move(options));
}

std::unique_ptr<TeacherSource> make_module_teacher(asio::any_io_executor io, TeacherSpec spec, LoadTeacherModule load,
                                                   LocalTeacherOptions options) {
    std::string file = spec.module;
    auto model = std::make_unique<LoadedModule>(std::move(spec), std::move(load), std::move(options.samples));
    return std::make_unique<LocalTeacher>(std::move(io), "/teacher/module", std::move(file), std::move(model),
                                          std::move(options));
}

}  // namespace distilld::models
