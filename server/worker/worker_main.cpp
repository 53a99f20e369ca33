// distilld-worker: the data plane. Links libtorch; started by distilld, seldom by hand.
#include <CLI/CLI.hpp>
#include <string>

#include "distilld_version.hpp"
#include "server/teacher/teacher_server.hpp"
#include "server/worker/train_worker.hpp"

namespace {

constexpr int kWrongUsage = 2;

struct TeacherArguments {
    distilld::TeacherServerOptions options;
    std::string dtype = "auto";
    std::uint32_t delay_ms = 0;
};

void add_teacher(CLI::App& app, TeacherArguments& arguments) {
    CLI::App* teacher = app.add_subcommand("teacher", "Serve a model folder as a teacher endpoint");
    teacher->add_option("MODEL_DIR", arguments.options.model_dir, "Hugging Face folder")->required();
    teacher->add_option("--listen", arguments.options.listen, "ADDRESS:PORT; port 0 = any free one");
    teacher->add_option("--threads", arguments.options.threads, "threads of one forward pass; 0 = all cores");
    teacher->add_option("--dtype", arguments.dtype, "arithmetic")->check(CLI::IsMember({"auto", "fp32", "bf16"}));
    teacher->add_option("--delay-ms", arguments.delay_ms, "answer later, without using the CPU");
    teacher->add_option("--max-batch-tokens", arguments.options.max_batch_tokens, "positions computed together");
    teacher->add_option("--model-name", arguments.options.model_name, "{model} of /v2/models/{model}");
}

distilld::Dtype dtype_of(const std::string& text) {
    if (text == "fp32") {
        return distilld::Dtype::fp32;
    }
    return text == "bf16" ? distilld::Dtype::bf16 : distilld::Dtype::auto_select;
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app{"distilld-worker: trains students and serves teachers for distilld", "distilld-worker"};
    app.set_version_flag("--version", std::string("distilld-worker ") + distilld::kVersion);
    app.require_subcommand(1);
    app.add_subcommand("train", "Train one job, told over file descriptor 3 by distilld");
    TeacherArguments teacher;
    add_teacher(app, teacher);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        const int code = app.exit(error);
        return code == 0 ? 0 : kWrongUsage;
    }
    if (app.got_subcommand("train")) {
        return distilld::run_train_worker();
    }
    teacher.options.dtype = dtype_of(teacher.dtype);
    teacher.options.delay = std::chrono::milliseconds(teacher.delay_ms);
    return distilld::run_teacher_server(teacher.options);
}
