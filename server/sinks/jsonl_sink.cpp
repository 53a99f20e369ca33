#include "server/sinks/jsonl_sink.hpp"

#include <boost/json/object.hpp>
#include <cmath>
#include <utility>

#include "base/json_fields.hpp"
#include "base/json_text.hpp"
#include "pipeline/core/event_fields.hpp"
#include "server/sinks/append_file.hpp"
#include "server/sinks/file_sink.hpp"
#include "server/sinks/jsonl_history.hpp"

namespace distilld::sinks {

namespace json = boost::json;

namespace {

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
        if (!began_) {
            if (Result<void> cut = file_.cut(history_.kept_bytes); !cut) {
                return cut;
            }
            began_ = true;
        }
        std::string text = history_.kept_lines;
        for (const SinkItem& item : items) {
            text += to_text(line_of(item)) + "\n";
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
    Result<AppendFile> file = AppendFile::open(path);
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
