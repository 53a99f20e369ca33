// distilld-bench tokenize: how fast text becomes ids, on one thread and on all, alone and as a dataset is read.
#include <algorithm>
#include <boost/json/object.hpp>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <vector>

#include "base/json_text.hpp"
#include "bench/median.hpp"
#include "bench/scenario.hpp"
#include "pipeline/data/read_documents.hpp"
#include "pipeline/data/tokenizer/tokenizer.hpp"

namespace distilld::bench {
namespace {

using Clock = std::chrono::steady_clock;

/// A document is what lies between two empty lines, about.
std::vector<std::string> documents_of(const std::string& text) {
    constexpr std::size_t kLeastBytes = 1000;
    std::vector<std::string> documents;
    for (std::size_t begin = 0; begin < text.size();) {
        std::size_t end = text.find("\n\n", std::min(begin + kLeastBytes, text.size()));
        end = end == std::string::npos ? text.size() : end + 2;
        documents.push_back(text.substr(begin, end - begin));
        begin = end;
    }
    return documents;
}

std::string read_text(const std::string& file) {
    std::ifstream in(file, std::ios::binary);
    std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    if (!in || text.empty()) {
        throw UsageError(file + ": cannot be read, or is empty");
    }
    return text;
}

std::uint64_t encode_share(const Tokenizer& tokenizer, const std::vector<std::string>& documents, std::size_t first,
                           std::size_t step) {
    std::uint64_t tokens = 0;
    for (std::size_t number = first; number < documents.size(); number += step) {
        tokens += tokenizer.encode(documents[number]).size();
    }
    return tokens;
}

/// Seconds that `threads` of them take for all documents.
double seconds_of(const Tokenizer& tokenizer, const std::vector<std::string>& documents, std::uint32_t threads) {
    const Clock::time_point began = Clock::now();
    {
        std::vector<std::jthread> team;
        for (std::uint32_t number = 1; number < threads; ++number) {
            team.emplace_back([&, number] { encode_share(tokenizer, documents, number, threads); });
        }
        encode_share(tokenizer, documents, 0, threads);
    }
    return std::chrono::duration<double>(Clock::now() - began).count();
}

/// The documents as a dataset: a JSONL file in a folder of its own, which goes with it.
class JsonlFile {
  public:
    explicit JsonlFile(const std::vector<std::string>& documents) {
        std::string folder = (std::filesystem::temp_directory_path() / "distilld-bench-XXXXXX").string();
        if (::mkdtemp(folder.data()) == nullptr) {
            throw std::runtime_error("no temporary folder can be made");
        }
        folder_ = folder;
        std::ofstream out(file(), std::ios::binary);
        for (const std::string& document : documents) {
            out << to_text({{"text", document}}) << '\n';
        }
        if (!out.flush()) {
            throw std::runtime_error(file().string() + ": cannot be written");
        }
    }
    ~JsonlFile() {
        std::error_code ignored;
        std::filesystem::remove_all(folder_, ignored);
    }
    JsonlFile(const JsonlFile&) = delete;
    JsonlFile& operator=(const JsonlFile&) = delete;

    [[nodiscard]] std::filesystem::path file() const { return folder_ / "text.jsonl"; }

  private:
    std::filesystem::path folder_;
};

/// Seconds that the reading of the dataset takes, its documents going nowhere.
double seconds_of_reading(const Tokenizer& tokenizer, const std::filesystem::path& file, std::uint32_t threads) {
    DatasetOptions options;
    options.threads = threads;
    const auto drop = [](const Document&, std::uint64_t, double) { return Result<void>(); };
    const Clock::time_point began = Clock::now();
    if (Result<void> read = read_documents({&file, 1}, &tokenizer, options, drop); !read) {
        throw std::runtime_error(read.error().message);
    }
    return std::chrono::duration<double>(Clock::now() - began).count();
}

}  // namespace

boost::json::object run_tokenize(const TokenizeOptions& options) {
    const Clock::time_point began = Clock::now();
    const Result<std::unique_ptr<Tokenizer>> loaded = load_tokenizer(options.folder);
    if (!loaded || *loaded == nullptr) {
        throw UsageError(loaded ? options.folder + ": has no tokenizer.json" : loaded.error().message);
    }
    const double load_seconds = std::chrono::duration<double>(Clock::now() - began).count();
    const Tokenizer& tokenizer = **loaded;
    const std::string text = read_text(options.text_file);
    const std::vector<std::string> documents = documents_of(text);
    const std::uint64_t tokens = encode_share(tokenizer, documents, 0, 1);
    std::vector<double> one;
    std::vector<double> all;
    std::vector<double> read_by_one;
    std::vector<double> read_by_all;
    const JsonlFile dataset(documents);
    for (std::uint32_t turn = 0; turn < options.repeat; ++turn) {
        one.push_back(seconds_of(tokenizer, documents, 1));
        all.push_back(seconds_of(tokenizer, documents, options.threads));
        read_by_one.push_back(seconds_of_reading(tokenizer, dataset.file(), 1));
        read_by_all.push_back(seconds_of_reading(tokenizer, dataset.file(), options.threads));
    }
    const auto megabytes = static_cast<double>(text.size()) / 1e6;
    boost::json::object report;
    report["tokenizer"] = tokenizer.kind();
    report["vocabulary_size"] = tokenizer.vocabulary_size();
    report["load_seconds"] = load_seconds;
    report["documents"] = documents.size();
    report["bytes"] = text.size();
    report["tokens"] = tokens;
    report["bytes_per_token"] = static_cast<double>(text.size()) / static_cast<double>(tokens);
    report["megabytes_per_second"] = megabytes / median(one);
    report["threads"] = options.threads;
    report["megabytes_per_second_of_all_threads"] = megabytes / median(all);
    report["jsonl_megabytes_per_second"] = megabytes / median(read_by_one);
    report["jsonl_megabytes_per_second_of_all_threads"] = megabytes / median(read_by_all);
    return report;
}

}  // namespace distilld::bench
