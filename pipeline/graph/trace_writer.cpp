#include "pipeline/graph/trace_writer.hpp"

#include <cstdio>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace distilld {

namespace {

using Micros = std::chrono::duration<double, std::micro>;

class FileTraceWriter final : public TraceWriter {
  public:
    explicit FileTraceWriter(std::ofstream out) : out_(std::move(out)) { out_ << "[\n"; }

    ~FileTraceWriter() override { out_ << "{}]\n"; }

    void span(Stage stage, std::string_view name, Instant begin, Instant end, std::uint64_t micro_batch) override {
        write(track_id(std::string(stage_name(stage))), name, begin, end, micro_batch);
    }

    void overlapping_span(Stage stage, std::string_view name, Instant begin, Instant end,
                          std::uint64_t micro_batch) override {
        // Spans come when they end, so a lane is free when its last span ended before this one began.
        std::vector<Instant>& lanes = lanes_[stage];
        std::size_t lane = 0;
        while (lane < lanes.size() && lanes[lane] > begin) {
            ++lane;
        }
        if (lane == lanes.size()) {
            lanes.emplace_back();
        }
        lanes[lane] = end;
        write(track_id(std::string(stage_name(stage)) + " " + std::to_string(lane)), name, begin, end, micro_batch);
    }

  private:
    std::uint32_t track_id(const std::string& track) {
        const auto found = tracks_.find(track);
        if (found != tracks_.end()) {
            return found->second;
        }
        const auto id = static_cast<std::uint32_t>(tracks_.size() + 1);
        tracks_.emplace(track, id);
        out_ << R"({"ph":"M","name":"thread_name","pid":1,"tid":)" << id << R"(,"args":{"name":")" << track
             << "\"}},\n";
        return id;
    }

    // Names are ours (stage and event names), so nothing needs escaping.
    void write(std::uint32_t track, std::string_view name, Instant begin, Instant end, std::uint64_t micro_batch) {
        origin_ = origin_.value_or(begin);
        char times[96];
        std::snprintf(times, sizeof times, "\"ts\":%.3f,\"dur\":%.3f", Micros(begin - *origin_).count(),
                      Micros(end - begin).count());
        out_ << R"({"ph":"X","pid":1,"tid":)" << track << ",\"name\":\"" << name << "\"," << times
             << R"(,"args":{"micro_batch":)" << micro_batch << "}},\n";
    }

    std::ofstream out_;
    std::map<std::string, std::uint32_t> tracks_;
    std::map<Stage, std::vector<Instant>> lanes_;  // when the last span of each lane ended
    std::optional<Instant> origin_;                // where the first span began
};

}  // namespace

Result<std::unique_ptr<TraceWriter>> make_trace_writer(const std::filesystem::path& file) {
    std::ofstream out(file, std::ios::trunc);
    if (!out) {
        return io_error("trace file " + file.string() + " cannot be written");
    }
    return std::unique_ptr<TraceWriter>(std::make_unique<FileTraceWriter>(std::move(out)));
}

}  // namespace distilld
