// distilld-bench tokenize: how fast text becomes ids, on one thread and on all.
#include <algorithm>
#include <boost/json/object.hpp>
#include <chrono>
#include <fstream>
#include <iterator>
#include <memory>
#include <thread>
#include <vector>

#include "bench/median.hpp"
#include "bench/scenario.hpp"
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
    for (std::uint32_t turn = 0; turn < options.repeat; ++turn) {
        one.push_back(seconds_of(tokenizer, documents, 1));
        all.push_back(seconds_of(tokenizer, documents, options.threads));
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
    return report;
}

}  // namespace distilld::bench
