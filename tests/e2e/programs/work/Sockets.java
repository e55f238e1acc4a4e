import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.StandardProtocolFamily;
import java.net.URI;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** `java Sockets.java HOST PATH`: sockets of each kind, each in a way that blocks and in one that does not. */
public class Sockets {
    public static void main(String[] arguments) throws Exception {
        String host = arguments[0];
        ExecutorService threads = Executors.newCachedThreadPool();
        try (ServerSocketChannel server = ServerSocketChannel.open(StandardProtocolFamily.UNIX)) {
            server.bind(UnixDomainSocketAddress.of(Path.of(arguments[1])));
            threads.submit(() -> echo(server));
            try (SocketChannel client = SocketChannel.open(UnixDomainSocketAddress.of(Path.of(arguments[1])))) {
                System.out.println("unix " + ask(client));
            }
        }
        try (ServerSocketChannel server = ServerSocketChannel.open()) {
            server.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0));
            threads.submit(() -> echo(server));
            try (SocketChannel client = SocketChannel.open(server.getLocalAddress())) {
                System.out.println("loopback " + ask(client));
            }
        }
        System.out.println("selector " + select(new InetSocketAddress(host, 5432)));
        Callable<String> blocking = () -> {
            try (Socket socket = new Socket(host, 5432)) {
                socket.getOutputStream().write("hello\n".getBytes(StandardCharsets.UTF_8));
                return new String(socket.getInputStream().readNBytes(6), StandardCharsets.UTF_8).trim();
            }
        };
        List<Future<String>> answers = threads.invokeAll(Stream.generate(() -> blocking).limit(32).toList());
        System.out.println("threads " + answers.stream().map(Sockets::result).collect(Collectors.toSet()));
        System.out.println("url " + new String(URI.create("http://" + host + "/").toURL().openStream().readAllBytes()).trim());
        Process child = new ProcessBuilder("sh", "-c", "echo from a child").start();
        System.out.println(new String(child.getInputStream().readAllBytes()).trim());
        threads.shutdown();
    }

    private static Void echo(ServerSocketChannel server) throws Exception {
        try (SocketChannel peer = server.accept()) {
            ByteBuffer buffer = ByteBuffer.allocate(64);
            peer.read(buffer);
            peer.write(buffer.flip());
        }
        return null;
    }

    private static String ask(SocketChannel client) throws Exception {
        client.write(ByteBuffer.wrap("hello".getBytes(StandardCharsets.UTF_8)));
        ByteBuffer buffer = ByteBuffer.allocate(64);
        client.read(buffer);
        return new String(buffer.array(), 0, buffer.position(), StandardCharsets.UTF_8);
    }

    private static String select(InetSocketAddress address) throws Exception {
        try (Selector selector = Selector.open(); SocketChannel client = SocketChannel.open()) {
            client.configureBlocking(false);
            client.connect(address);
            client.register(selector, SelectionKey.OP_CONNECT);
            selector.select();
            client.finishConnect();
            client.write(ByteBuffer.wrap("hello\n".getBytes(StandardCharsets.UTF_8)));
            client.keyFor(selector).interestOps(SelectionKey.OP_READ);
            selector.selectedKeys().clear();
            selector.select();
            ByteBuffer buffer = ByteBuffer.allocate(64);
            client.read(buffer);
            return new String(buffer.array(), 0, buffer.position(), StandardCharsets.UTF_8).trim();
        }
    }

    private static String result(Future<String> future) {
        try {
            return future.get();
        } catch (Exception failure) {
            return failure.toString();
        }
    }
}
