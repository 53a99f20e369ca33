#include <algorithm>
#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <utility>

#include "base/files/open_file.hpp"
#include "base/json_fields.hpp"
#include "base/json_members.hpp"
#include "base/json_text.hpp"
#include "pipeline/core/event_fields.hpp"
#include "server/sinks/file_sink.hpp"
#include "server/sinks/registry.hpp"

namespace distilld::sinks {

namespace json = boost::json;

namespace {

constexpr std::size_t kMaxKeptBytes = std::size_t{16} << 20U;

/// What a resumed run keeps of a metrics file.
struct JsonlHistory {
    std::uint64_t kept_bytes = 0;  ///< from the beginning
    std::string kept_lines;        ///< after them, such as a checkpoint written after later steps
};

struct Line {
    std::string kind;
    std::string output;  ///< of a started line
    std::uint64_t step = 0;
};

/// nullopt: not a line of ours.
std::optional<Line> read_line(const std::string& text) {
    boost::system::error_code failed;
    const boost::json::value value = boost::json::parse(text, failed);
    if (failed || !value.is_object()) {
        return std::nullopt;
    }
    Line line;
    JsonMembers members(value.get_object());
    members.require("kind").require("step");
    members.text("kind", line.kind);
    members.text("output", line.output);
    members.integer("step", line.step);
    return members.failed() ? std::nullopt : std::optional(std::move(line));
}

class LineSource {
  public:
    explicit LineSource(Descriptor file) : stream_(::fdopen(file.get(), "rb")) {
        static_cast<void>(stream_ != nullptr ? file.release() : -1);
    }
    LineSource(const LineSource&) = delete;
    LineSource& operator=(const LineSource&) = delete;
    ~LineSource() {
        std::free(line_);
        if (stream_ != nullptr) {
            std::fclose(stream_);
        }
    }

    /// The next line with its line feed, which the last one may lack. False: no more lines.
    bool next(std::string& text) {
        const ssize_t size = stream_ != nullptr ? ::getline(&line_, &capacity_, stream_) : -1;
        text.assign(line_, static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
        return size > 0;
    }

  private:
    std::FILE* stream_;
    char* line_ = nullptr;
    std::size_t capacity_ = 0;
};

Error not_ours(const std::filesystem::path& file, const std::string& why) {
    return invalid_input(file.string() + " " + why +
                         ". Nothing was changed: name another file, or set \"overwrite\": true to replace it");
}

/// Reads the file that an earlier run with output folder `output` wrote. Keeps the lines of steps up to `first_step`,
/// and nothing if that is 0. If the file holds something else, or belongs to a run with another output, it is an error
/// (invalid_input), or with `overwrite` nothing is kept.
Result<JsonlHistory> read_jsonl_history(const std::filesystem::path& file, const std::string& output,
                                        std::uint64_t first_step, bool overwrite) {
    Result<Descriptor> opened = open_file(file, O_RDONLY);
    if (!opened) {
        return opened.error();
    }
    LineSource lines(std::move(*opened));
    JsonlHistory history;
    bool whole = true;  // nothing cut so far
    bool first = true;
    for (std::string text; lines.next(text);) {
        const bool ended = text.ends_with('\n');
        text.resize(text.size() - (ended ? 1 : 0));
        const std::optional<Line> line = ended ? read_line(text) : std::nullopt;
        if (first && (!line || line->kind != "started" || line->output != output)) {
            if (overwrite) {
                return JsonlHistory();
            }
            return not_ours(file, line && line->kind == "started" ? "belongs to a run with output " + line->output
                                                                  : "does not hold the metrics of a run");
        }
        first = false;
        if (!line || line->step > first_step) {
            whole = false;  // also cuts a line torn by a crash
        } else if (whole) {
            history.kept_bytes += text.size() + 1;
        } else if (history.kept_lines.size() < kMaxKeptBytes) {
            history.kept_lines += text + "\n";
        }
    }
    return first_step == 0 ? JsonlHistory() : history;
}

constexpr const char* kField = "/metrics/jsonl_file: ";

class JsonlSink final : public FileSink {
  public:
    JsonlSink(AppendFile file, JsonlHistory history, const SinkContext& context)
        : FileSink(kField),
          file_(std::move(file)),
          history_(std::move(history)),
          name_(context.spec.name),
          output_(context.spec.output),
          job_id_(context.job_id) {}

  private:
    Result<void> write_now(const std::vector<SinkItem>& items) override {
        auto from = items.begin();
        if (!began_) {
            // The file of a run begins with its start, by which the next attempt knows it; an end before that is not
            // kept.
            if (history_.kept_bytes == 0) {
                from = std::ranges::find_if(
                    items, [](const auto& item) { return std::holds_alternative<StartedEvent>(item.record); });
                if (from == items.end()) {
                    return {};
                }
            }
            if (Result<void> cut = file_.cut(history_.kept_bytes); !cut) {
                return cut;
            }
            began_ = true;
        }
        std::string text = history_.kept_lines;
        for (; from != items.end(); ++from) {
            text += to_text(line_of(*from)) + "\n";
        }
        Result<void> done = file_.append(text);
        if (done) {
            history_.kept_lines.clear();
        }
        return done;
    }

    json::object line_of(const SinkItem& item) const {
        json::object line{
            {"kind", kind_of(item.record)}, {"step", 0}, {"time", std::round(unix_seconds(item.at) * 1e3) / 1e3}};
        std::visit([&](const auto& record) { add(record, line); }, item.record);
        return line;
    }

    void add(const StartedEvent& record, json::object& line) const {
        line["step"] = record.first_step;
        line["name"] = name_;
        line["job_id"] = job_id_;
        line["output"] = output_;
        add_fields(record, line);
    }
    template <class T>
    void add(const T& record, json::object& line) const {
        add_fields(record, line);
    }
    void add(const SpanRecord& /*record*/, json::object& /*line*/) const {}

    template <class T>
    static void add_fields(const T& record, json::object& line) {
        for (auto& [name, value] : write_fields(record)) {
            line[name] = std::move(value);
        }
    }

    AppendFile file_;
    JsonlHistory history_;
    std::string name_;
    std::string output_;
    std::string job_id_;
    bool began_ = false;
};

}  // namespace

Result<std::unique_ptr<Sink>> make_jsonl_sink(const SinkContext& context, boost::asio::any_io_executor /*thread*/) {
    const std::string& path = context.spec.metrics.jsonl_file;
    if (path.empty()) {
        return std::unique_ptr<Sink>();
    }
    Result<AppendFile> file = AppendFile::open(path, context.replaces);
    if (!file) {
        return Error{file.error().kind, kField + file.error().message};
    }
    const Result<JsonlHistory> history =
        read_jsonl_history(path, context.spec.output, context.first_step, context.spec.overwrite);
    if (!history) {
        return Error{history.error().kind, kField + history.error().message};
    }
    return std::unique_ptr<Sink>(std::make_unique<JsonlSink>(std::move(*file), *history, context));
}

}  // namespace distilld::sinks
