#include "server/sinks/registry.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <utility>

#include "base/files/files.hpp"
#include "base/files/open_file.hpp"
#include "server/sinks/file_sink.hpp"
#include "server/sinks/tensorboard_records.hpp"

namespace distilld::sinks {

namespace fs = std::filesystem;

namespace {

constexpr const char* kFolderField = "/metrics/tensorboard_dir: ";
constexpr std::string_view kPrefix = "events.out.tfevents.";

/// The seconds in the name of an event file; 0 for another file.
std::int64_t seconds_in(const std::string& name) {
    std::int64_t seconds = 0;
    if (name.starts_with(kPrefix)) {
        std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), seconds);
    }
    return seconds;
}

/// TensorBoard reads files in the order of their names, and this file supersedes steps of earlier ones. Its time is
/// therefore later than theirs, regardless of the clock.
fs::path new_event_file(const fs::path& folder, std::int64_t now) {
    const auto names = names_in(folder);
    for (const std::string& name : names ? *names : std::vector<std::string>()) {
        now = std::max(now, seconds_in(name) + 1);
    }
    std::array<char, 256> host{};
    ::gethostname(host.data(), host.size() - 1);
    return folder / (std::string(kPrefix) + std::to_string(now) + "." + host.data() + "." + std::to_string(::getpid()));
}

class TensorboardSink final : public FileSink {
  public:
    explicit TensorboardSink(const SinkContext& context)
        : FileSink(kFolderField),
          folder_(context.spec.metrics.tensorboard_dir),
          first_step_(context.first_step),
          spec_json_(context.spec_json) {}

  private:
    Result<void> write_now(const std::vector<SinkItem>& items) override {
        std::string bytes;
        if (!file_) {
            const auto now = std::chrono::system_clock::now();
            Result<AppendFile> made = AppendFile::open(new_event_file(folder_, unix_milliseconds(now) / 1000));
            if (!made) {
                return made.error();
            }
            file_.emplace(std::move(*made));
        }
        if (file_->size() == 0) {
            const auto at = items.front().at;
            bytes += tfrecord(tensorboard_version(at));
            bytes += tfrecord(tensorboard_start(at, first_step_ + 1));
            bytes += tfrecord(tensorboard_text(at, first_step_, "spec", "```json\n" + spec_json_ + "\n```"));
        }
        for (const SinkItem& item : items) {
            at_ = item.at;
            std::visit([&](const auto& record) { add(record, bytes); }, item.record);
        }
        return file_->append(bytes);
    }

    void add(const StepRecord& record, std::string& bytes) const {
        scalars(record.step,
                {{"train/loss", record.loss},
                 {"train/kd_loss", record.kd_loss},
                 {"train/ce_loss", record.ce_loss},
                 {"train/grad_norm", record.grad_norm},
                 {"train/learning_rate", record.learning_rate},
                 {"train/tokens", static_cast<double>(record.tokens)},
                 {"pace/tokens_per_second", record.tokens_per_second},
                 {"pace/stall_fraction", record.stall_fraction},
                 {"pace/teacher_hidden_fraction", record.teacher_hidden_fraction}},
                bytes);
    }
    void add(const EvaluationEvent& record, std::string& bytes) const {
        std::vector<TensorboardScalar> values{{"eval/loss", record.loss}};
        if (record.kl) {
            values.push_back({"eval/kl", *record.kl});
        }
        if (record.top1_agreement) {
            values.push_back({"eval/top1_agreement", *record.top1_agreement});
        }
        if (record.acceptance_rate) {
            values.push_back({"eval/acceptance_rate", *record.acceptance_rate});
        }
        scalars(record.step, values, bytes);
        texts("samples/", record, bytes);
    }
    void add(const RolloutEvent& record, std::string& bytes) const { texts("rollouts/", record, bytes); }
    void add(const FiguresEvent& record, std::string& bytes) const {
        std::vector<TensorboardScalar> values;
        for (const auto& [name, value] : record.figures) {
            values.push_back({"figures/" + name, value});
        }
        if (!values.empty()) {
            scalars(record.step, values, bytes);
        }
    }
    void add(const CheckpointEvent& record, std::string& bytes) const {
        scalars(record.step, {{"pace/checkpoint_seconds", record.seconds}}, bytes);
    }
    void add(const EndRecord& record, std::string& bytes) const {
        if (record.exported_eval_loss) {
            scalars(record.step, {{"eval/exported_loss", *record.exported_eval_loss}}, bytes);
        }
        if (!record.message.empty()) {
            bytes += tfrecord(tensorboard_text(at_, record.step, "failure", record.message));
        }
    }
    void add(const StartedEvent& /*record*/, std::string& /*bytes*/) const {}
    void add(const SpanRecord& /*record*/, std::string& /*bytes*/) const {}

    template <class Samples>
    void texts(const std::string& below, const Samples& record, std::string& bytes) const {
        for (std::size_t i = 0; i < record.samples.size(); ++i) {
            bytes += tfrecord(tensorboard_text(at_, record.step, below + std::to_string(i),
                                               record.samples[i].prompt + " → " + record.samples[i].text));
        }
    }
    void scalars(std::uint64_t step, const std::vector<TensorboardScalar>& values, std::string& bytes) const {
        bytes += tfrecord(tensorboard_scalars(at_, step, values));
    }

    fs::path folder_;
    std::uint64_t first_step_;
    std::string spec_json_;
    std::optional<AppendFile> file_;
    TensorboardTime at_;  ///< of the current record
};

}  // namespace

Result<std::unique_ptr<Sink>> make_tensorboard_sink(const SinkContext& context,
                                                    boost::asio::any_io_executor /*thread*/) {
    const fs::path folder = context.spec.metrics.tensorboard_dir;
    if (folder.empty()) {
        return std::unique_ptr<Sink>();
    }
    if (const Result<void> made = make_folders(folder); !made) {
        return Error{made.error().kind, kFolderField + made.error().message};
    }
    if (const Result<AtomicFile> probe = AtomicFile::create(folder / "probe"); !probe) {
        return Error{probe.error().kind, kFolderField + probe.error().message};
    }
    return std::unique_ptr<Sink>(std::make_unique<TensorboardSink>(context));
}

}  // namespace distilld::sinks
