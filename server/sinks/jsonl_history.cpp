#include "server/sinks/jsonl_history.hpp"

#include <algorithm>
#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "base/json_members.hpp"
#include "base/open_file.hpp"

namespace distilld::sinks {

namespace {

constexpr std::size_t kMaxKeptBytes = std::size_t{16} << 20U;

struct Line {
    std::string kind;
    std::string output;  ///< of a started line
    std::uint64_t step = 0;
};

/// Nothing: not one of ours.
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

    /// With its line feed, which the last one may lack. False: there is none.
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
                         ". Nothing was changed: name another file, or say \"overwrite\": true to replace it");
}

}  // namespace

Result<JsonlHistory> read_jsonl_history(const std::filesystem::path& file, const std::string& output,
                                        std::uint64_t first_step, bool overwrite) {
    Result<Descriptor> opened = open_file(file, O_RDONLY);
    if (!opened) {
        return opened.error();
    }
    LineSource lines(std::move(*opened));
    JsonlHistory history;
    bool whole = true;  // nothing was cut so far
    bool first = true;
    for (std::string text; lines.next(text);) {
        const bool ended = text.ends_with('\n');
        text.resize(text.size() - (ended ? 1 : 0));
        const std::optional<Line> line = ended ? read_line(text) : std::nullopt;
        if (first && (!line || line->kind != "started" || line->output != output)) {
            if (overwrite) {
                return JsonlHistory();
            }
            return not_ours(file, line && line->kind == "started" ? "is of a run whose output is " + line->output
                                                                  : "holds something else than the metrics of a run");
        }
        first = false;
        if (!line || line->step > first_step) {
            whole = false;  // a line that was torn by a crash goes as well
        } else if (whole) {
            history.kept_bytes += text.size() + 1;
        } else if (history.kept_lines.size() < kMaxKeptBytes) {
            history.kept_lines += text + "\n";
        }
    }
    return first_step == 0 ? JsonlHistory() : history;
}

}  // namespace distilld::sinks
