#include "server/cli/next_step.hpp"

#include <filesystem>

#include "base/shell_word.hpp"

namespace distilld::cli {
namespace fs = std::filesystem;

namespace {

// Takes BitNet weights, which our server does not.
constexpr const char* kPipeline =
    "python3 -c 'import sys, transformers; folder = sys.argv[1]; "
    "print(transformers.pipeline(\"text-generation\", folder, tokenizer=folder)(\"Once upon a time\"))' ";

// In another terminal.
constexpr const char* kAsk =
    R"( and curl http://127.0.0.1:8600/v1/completions -d '{"prompt": "Once upon a time", "max_tokens": 40}')";

}  // namespace

std::string next_step(const JobSpec& spec, const std::string& output) {
    if (spec.kind == JobKind::generate) {
        return "the answers are in " + output + " (docs/store.md); a job with that folder as teacher.store learns " +
               "from them without a teacher";
    }
    if (spec.student.format == StudentFormat::torchscript) {
        return "the student is in " + output + ": model.pt, and its weights in model.safetensors " +
               "(docs/any-network.md)";
    }
    const bool adapter = spec.student.lora && !spec.student.lora->merge;
    std::string folder = output;
    if (spec.student.lora && !adapter) {
        folder = (fs::path(output) / "merged").string();
    } else if (spec.student.quantization == Quantization::ternary) {
        folder = (fs::path(output) / "ternary").string();
    }
    const std::string where = std::string(adapter ? "the adapter is in " : "the student is in ") + folder;
    std::error_code code;
    if (!fs::exists(fs::path(folder) / "tokenizer.json", code)) {
        return where + ", without a tokenizer (docs/use-the-student.md)";
    }
    if (spec.student.quantization == Quantization::ternary) {
        return where + " (docs/use-the-student.md); try: " + kPipeline + shell_word(folder);
    }
    return where + " (docs/use-the-student.md); try: distilld teacher " + shell_word(folder) + kAsk;
}

}  // namespace distilld::cli
