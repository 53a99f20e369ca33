// Job specs: what POST /v1/jobs, `distilld run` and `distilld spec` read.
#include <fstream>
#include <sstream>

#include "api/job_spec_json.hpp"
#include "api/spec_comments.hpp"
#include "api/spec_overrides.hpp"
#include "tests/fuzz/targets.hpp"
#include "tests/support/paths.hpp"

namespace distilld::fuzz {

void read_spec(std::string_view input) {
    const auto parts = parts_of(input);
    std::string text = api::without_comments(parts.front());
    demand(text.size() == parts.front().size(), "comments leave places as they are");
    if (parts.size() > 1) {  // with a change, as --set has it
        auto override = api::parse_override(std::string(parts[1]));
        if (!accepted(override)) {
            return;
        }
        auto changed = api::apply_overrides(text, {*override});
        if (!accepted(changed)) {
            return;
        }
        text = std::move(*changed);
    }
    const auto spec = api::parse_job_spec(text);
    if (!spec) {
        demand(!spec.error().violations.empty(), "a refused spec has a violation");
        for (const auto& violation : spec.error().violations) {
            demand(!violation.detail.empty(), "a violation has words");
        }
        demand(!api::describe(spec.error()).empty(), "a refused spec has words");
        return;
    }
    const std::string written = api::to_json(*spec);
    const auto again = api::parse_job_spec(written);
    demand(again.has_value(), "what was written of a spec is one");
    demand(api::to_json(*again) == written, "a spec stays the same when it is written and read");
}

std::vector<std::string> spec_seeds() {
    std::vector<std::string> seeds{
        R"({"student":{"model":"m","lora":{"r":4}},"dataset":{"train":["a","b*"],"sequence_length":8},"output":"o"})",
        R"({"kind":"generate","teacher":{"endpoints":["http://t:1"],"store":"s","store_format":"topp","store_p":0.9},)"
        R"("dataset":{"train":"d","sequence_length":4}})",
        std::string(R"({"student":{"model":"m"},"dataset":{"train":"d","sequence_length":8},"output":"o"})") +
            std::string(kBorder) + "/training/batch_size=\"auto\"",
        R"(// words
{"student":{/* none */"model":1e400},"a":[[[[{}]]]]})"};
    for (const auto& entry : std::filesystem::recursive_directory_iterator(test::source_dir() / "examples")) {
        if (entry.path().extension() == ".json") {
            std::ostringstream text;
            text << std::ifstream(entry.path()).rdbuf();
            seeds.push_back(text.str());
        }
    }
    return seeds;
}

}  // namespace distilld::fuzz
