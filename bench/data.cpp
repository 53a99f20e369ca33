// distilld-bench data: how long a dataset takes to be there, read and mapped, and what memory it takes.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/json/object.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "bench/scenario.hpp"
#include "pipeline/data/packed_dataset.hpp"
#include "pipeline/data/token_cache.hpp"

namespace distilld::bench {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

/// Of this process, in bytes: memory that is no file's.
std::uint64_t anonymous_bytes() {
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;) {
        if (word == "RssAnon:") {
            std::uint64_t kilobytes = 0;
            status >> kilobytes;
            return kilobytes * 1024;
        }
    }
    throw std::runtime_error("/proc/self/status: has no RssAnon");
}

/// One start, as its process tells it.
struct Start {
    double load_seconds = 0;  ///< until the tokens are there
    double rows_seconds = 0;  ///< until the rows' lengths are known, packed where documents are
    std::uint64_t tokens = 0;
    std::uint64_t rows = 0;
    std::uint64_t peak_bytes = 0;  ///< anonymous, beside what the process had
    std::uint64_t held_bytes = 0;
    std::array<char, 64> hash{};
};

Start start(const DataOptions& options, const Tokenizer& tokenizer, const fs::path& cache_folder) {
    Start measured;
    const std::uint64_t before = anonymous_bytes();
    const auto see_memory = [&] {
        const std::uint64_t now = anonymous_bytes();
        measured.held_bytes = now - std::min(now, before);
        measured.peak_bytes = std::max(measured.peak_bytes, measured.held_bytes);
    };
    const auto warn = [](const std::string& text) { std::cerr << "distilld-bench: " << text << "\n"; };
    TokenCache cache(cache_folder, "distilld-bench", [](const std::string&) {}, warn, 0);
    DatasetOptions how;
    how.sequence_length = options.sequence_length;
    how.packing = !options.documents;
    how.threads = options.threads;
    how.cache = cache_folder.empty() ? nullptr : &cache;
    how.on_progress = [&](const ReadingProgress&) {
        see_memory();
        return true;
    };
    const Clock::time_point began = Clock::now();
    const std::vector<fs::path> files(options.files.begin(), options.files.end());
    auto loaded = load_jsonl_dataset(files, &tokenizer, how);
    if (!loaded) {
        throw std::runtime_error(loaded.error().message);
    }
    const Clock::time_point there = Clock::now();
    see_memory();
    std::shared_ptr<const Dataset> rows(std::move(*loaded));
    if (options.documents) {
        rows = pack_documents(std::move(rows), options.sequence_length);
    }
    for (std::uint64_t row = 0; row < rows->row_count(); ++row) {
        measured.tokens += rows->row_length(row);
    }
    measured.rows_seconds = std::chrono::duration<double>(Clock::now() - there).count();
    measured.load_seconds = std::chrono::duration<double>(there - began).count();
    measured.rows = rows->row_count();
    see_memory();
    std::ranges::copy(rows->hash(), measured.hash.begin());
    return measured;
}

/// In a process of its own, whose memory is nothing else's.
Start in_a_process(const std::function<Start()>& run) {
    std::array<int, 2> ends{};
    if (::pipe(ends.data()) != 0) {
        throw std::system_error(errno, std::generic_category(), "pipe");
    }
    const pid_t child = ::fork();
    if (child < 0) {
        throw std::system_error(errno, std::generic_category(), "fork");
    }
    if (child == 0) {
        int code = 1;
        try {
            const Start measured = run();
            code = ::write(ends[1], &measured, sizeof measured) == sizeof measured ? 0 : 1;
        } catch (const std::exception& error) {
            std::cerr << "distilld-bench: " << error.what() << "\n";
        }
        ::_exit(code);
    }
    ::close(ends[1]);
    Start measured;
    const bool told = ::read(ends[0], &measured, sizeof measured) == sizeof measured;
    ::close(ends[0]);
    ::waitpid(child, nullptr, 0);
    if (!told) {
        throw std::runtime_error("the process that loads the dataset has failed");
    }
    return measured;
}

boost::json::object report_of(const Start& start) {
    boost::json::object report;
    report["seconds"] = start.load_seconds;
    report["rows_seconds"] = start.rows_seconds;
    report["nanoseconds_a_row"] = 1e9 * start.rows_seconds / static_cast<double>(start.rows);
    report["peak_anonymous_mebibytes"] = static_cast<double>(start.peak_bytes) / (1 << 20);
    report["held_anonymous_mebibytes"] = static_cast<double>(start.held_bytes) / (1 << 20);
    return report;
}

/// An empty folder that goes with it.
class Folder {
  public:
    explicit Folder(const std::string& in) {
        std::string path = (fs::path(in) / "distilld-bench-XXXXXX").string();
        if (::mkdtemp(path.data()) == nullptr) {
            throw UsageError(in + ": no folder can be made there");
        }
        path_ = path;
    }
    ~Folder() {
        std::error_code ignored;
        fs::remove_all(path_, ignored);
    }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    [[nodiscard]] const fs::path& path() const { return path_; }

  private:
    fs::path path_;
};

}  // namespace

boost::json::object run_data(const DataOptions& options) {
    std::uint64_t bytes = 0;
    for (const std::string& file : options.files) {
        std::error_code failed;
        bytes += fs::file_size(file, failed);
        if (failed) {
            throw UsageError(file + ": " + failed.message());
        }
    }
    Result<std::unique_ptr<Tokenizer>> loaded =
        options.tokenizer.empty() ? make_byte_tokenizer() : load_tokenizer(options.tokenizer);
    if (!loaded || *loaded == nullptr) {
        throw UsageError(loaded ? options.tokenizer + ": has no tokenizer.json" : loaded.error().message);
    }
    const Tokenizer& tokenizer = **loaded;
    const Folder folder(options.folder.empty() ? fs::temp_directory_path().string() : options.folder);
    const Start memory = in_a_process([&] { return start(options, tokenizer, {}); });
    const Start first = in_a_process([&] { return start(options, tokenizer, folder.path()); });
    const Start again = in_a_process([&] { return start(options, tokenizer, folder.path()); });
    boost::json::object report;
    report["files"] = options.files.size();
    report["bytes"] = bytes;
    report["tokens"] = again.tokens;
    report["rows"] = again.rows;
    report["same_dataset"] = memory.hash == first.hash && first.hash == again.hash;
    report["in_memory"] = report_of(memory);
    report["first_start"] = report_of(first);
    report["next_start"] = report_of(again);
    return report;
}

}  // namespace distilld::bench
