"""The pages, the script that writes the generated one, and the script that makes a website of all"""
